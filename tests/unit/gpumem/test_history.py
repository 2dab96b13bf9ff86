"""Tests how the command reads the use of seats from files."""

from pathlib import Path

import pytest

from gpumem import history
from gpumem.prometheus import HistoryError
from gpumem.proposal import UseSample
from tenancy.ledger import Seat
from tests.support.kubectl import LEDGER_OF_PROD

HEADER = "time,seat,mib\n"


def read(file: Path) -> tuple[UseSample, ...]:
    return history.read(str(file), LEDGER_OF_PROD, days=7, now=0).samples


def test_a_file_has_a_line_a_sample(tmp_path: Path) -> None:
    file = tmp_path / "use.csv"
    file.write_bytes(b"\xef\xbb\xbftime,seat,mib,note\r\n60,immich-ml,2100.5,\r\n")
    assert read(file) == (UseSample(60, "immich-ml", 2100.5),)


def test_a_file_may_name_pods_and_what_was_free(tmp_path: Path) -> None:
    file = tmp_path / "use.csv"
    file.write_text(
        "time,seat,mib,pod,free_mib\n60,immich-ml,2100,a,1535\n60,immich-ml,2100,b,1536\n60,immich-ml,1,,\n"
    )
    assert [(each.pod, each.pressed) for each in read(file)] == [("a", True), ("b", False), ("", False)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"time,mib\n", r"the columns must be time, seat, mib, each once \(got \['time', 'mib'\]\)"),
        (b"", "the columns must be time, seat, mib"),
        (b"\xff\xfe", "is no CSV file in UTF-8"),
    ],
)
def test_a_file_that_is_no_history_is_an_error(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "use.csv"
    file.write_bytes(content)
    with pytest.raises(HistoryError, match=message):
        read(file)
    with pytest.raises(HistoryError, match="cannot be read: No such file"):
        read(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("tenant", "pod", "declared_mib", "seat"),
    [
        ("immich", "immich-ml-5d8f7c-x2x9w", 3000, "immich-ml"),
        ("immich", "immich-server-0", 9000, "immich-server"),
        ("immich", "worker-0", 1700, "immich-server"),
        ("immich", "worker-0", 2000, "immich-ml"),
        ("immich", "worker-0", 4000, None),
        ("llama-swap", "qwen-0", 9000, "llama-swap"),
    ],
)
def test_a_pods_seat_is_that_of_its_name_or_the_only_one_or_of_its_size(
    tenant: str, pod: str, declared_mib: float, seat: str | None
) -> None:
    found = history.seat_of(LEDGER_OF_PROD.seats_of(tenant), pod, declared_mib)
    assert (found and found.name) == seat


def test_a_pod_on_two_devices_has_the_seat_of_two_devices_that_holds_its_sum() -> None:
    alone = Seat(name="alone", tenant="chat", pool="a", gpumem_mib=6000)
    pair = Seat(name="pair", tenant="chat", pool="a", gpumem_mib=5000, devices_per_pod=2)
    assert [history.seat_of((alone, pair), "other-0", mib) for mib in (6000, 10000, 10001)] == [alone, pair, None]


@pytest.mark.parametrize(("days", "step"), [(1, 60), (28, 60), (38, 60), (39, 120), (365, 600)])
def test_a_long_history_is_asked_for_in_longer_steps(days: int, step: int) -> None:
    assert history.step_seconds(days) == step


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "60,immich,1\n", ":2: seat 'immich' is no resident; known: immich-ml, immich-server, llama-swap"),
        (HEADER + "60,immich-ml,1\nnoon,immich-ml,1\n", r":3: time must be a number from 0 \(got 'noon'\)"),
        (HEADER + "60,immich-ml,-1\n", r":2: mib must be a number from 0 \(got '-1'\)"),
        (HEADER + "60,immich-ml,nan\n", r":2: mib must be a number from 0 \(got 'nan'\)"),
        (HEADER + "60,immich-ml\n", r":2: mib must be a number from 0 \(got None\)"),
        (HEADER + "1750000000000,immich-ml,1\n", ":2: time must be at most 253402300799 "),
        (HEADER + "60,immich-ml,1e308\n", ":2: mib must be at most 2147483648 "),
        ("time,seat,mib,mib\n60,immich-ml,100,9000\n", "time, seat, mib, each once "),
    ],
)
def test_a_line_that_is_no_sample_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "use.csv"
    file.write_text(text)
    with pytest.raises(HistoryError, match=message):
        read(file)
