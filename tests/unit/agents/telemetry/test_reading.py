"""Tests that agents use an exporter's metrics only if they are complete, fresh and plausible."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agents.runtime.errors import AgentError
from agents.telemetry.device import Device
from agents.telemetry.reading import PodUse, TelemetryError, Trouble, parse
from tenancy.units import MIB
from tests.support.curves import Use, answer

ML = Use("immich", "immich-ml-0", "uid-ml", 2_000)
FRIGATE = Use("frigate", "frigate-0", "uid-frigate", 1_900)
CARD = Device(gpu=0, uuid="GPU-0", total_bytes=15360 * MIB, used_bytes=4_350 * MIB, free_bytes=11_010 * MIB)


def text(*, age_seconds: float = 1, uses: Sequence[Use] = (ML, FRIGATE)) -> str:
    return answer(uses, age_seconds=age_seconds, driver_mib=450)


def test_it_reports_the_devices_and_their_users() -> None:
    assert parse(text(uses=())).uses == ()
    reading = parse(text())
    assert (reading.devices, reading.age_seconds, reading.unknown_uses, reading.lost) == ((CARD,), 1, {}, ())
    assert reading.uses == (
        PodUse(uid="uid-frigate", namespace="frigate", pod="frigate-0", uuid="GPU-0", used_bytes=1_900 * MIB),
        PodUse(uid="uid-ml", namespace="immich", pod="immich-ml-0", uuid="GPU-0", used_bytes=2_000 * MIB),
    )


def test_a_sample_may_be_thirty_seconds_old() -> None:
    assert parse(text(age_seconds=30)).devices == (CARD,)
    with pytest.raises(TelemetryError, match="needed is one of at most 30 s") as stale:
        parse(text(age_seconds=30.1))
    assert stale.value.trouble is Trouble.STALE


def test_without_unattributed_memory_the_devices_are_known_and_their_users_are_not() -> None:
    reading = parse(without(text(), "unattributed"))
    assert (reading.devices, reading.uses) == ((CARD,), ())
    assert reading.unknown_uses == {"GPU-0": "the exporter does not report who uses it"}


def without(text: str, part: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if part not in line)


def doubled(text: str, part: str, old: str = "", new: str = "") -> str:
    more = "".join(line.replace(old, new) for line in text.splitlines(keepends=True) if part in line and line[0] != "#")
    return text + more


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("", "gpu_memory_sample_age_seconds is missing"),
        (without(text(), "sample_age"), "gpu_memory_sample_age_seconds is missing"),
        (text().replace("seconds 1", "seconds -1"), "needed is one of at most"),
        (without(text(), "free_bytes"), "partial"),
        (without(text(), "gpu_device"), "partial"),
        (text().replace(f" {11_010 * MIB}\n", " NaN\n"), "impossible series"),
        (text().replace(f" {11_010 * MIB}\n", " -1\n"), "impossible series"),
        (text().replace('gpu="0"', 'gpu="x"'), "impossible series"),
        (doubled(text(), "gpu_device"), "impossible series"),
        (doubled(text(), "gpu_device", "GPU-0", "GPU-1"), "two devices have one index or one uuid"),
        (doubled(text(), "gpu_device", 'gpu="0"', 'gpu="1"'), "two devices have one index or one uuid"),
        (doubled(text(), "uid-ml"), "impossible series"),
        (doubled(text(), "uid-ml", "GPU-0", "GPU-1"), "impossible series"),
        (text().replace('pod_uid="uid-ml"', 'pod_uid=""'), "impossible series"),
        (
            doubled(text(), "unattributed", 'gpu="0",uuid="GPU-0"', 'gpu="1",uuid="GPU-1"'),
            "is there for a device that is not",
        ),
        (text()[:-1], "is truncated"),
        ("<html>404</html>\n", "not a sample"),
    ],
)
def test_what_is_missing_partial_or_impossible_is_refused(wrong: str, words: str) -> None:
    with pytest.raises(AgentError, match=words):
        parse(wrong)


SECOND = """\
gpu_device_memory_total_bytes{gpu="1",uuid="GPU-1"} 1000
gpu_device_memory_used_bytes{gpu="1",uuid="GPU-1"} 700
gpu_device_memory_free_bytes{gpu="1",uuid="GPU-1"} 300
gpu_memory_unattributed_bytes{gpu="1",uuid="GPU-1"} 700
"""
EMPTY = Device(gpu=1, uuid="GPU-1", total_bytes=1000, used_bytes=700, free_bytes=300)


@pytest.mark.parametrize(
    ("answer", "devices", "lost"),
    [
        (text() + SECOND, (CARD, EMPTY), []),
        (text() + SECOND.replace(" 300", " 400"), (CARD,), ["gpu 1: used and free are more than the device has"]),
        (text() + SECOND.replace(" 700\ngpu_device", " 1\ngpu_device"), (CARD,), ["gpu 1: used and free are far less"]),
        (text() + 'gpu_device_unreadable{gpu="1"} 1\n', (CARD,), ["gpu 1: its exporter cannot read it"]),
    ],
)
def test_what_is_wrong_with_one_device_is_that_devices(answer: str, devices: Sequence[Device], lost: list[str]) -> None:
    reading = parse(answer)
    assert reading.devices == devices
    assert [str(each)[: len(words)] for each, words in zip(reading.lost, lost, strict=True)] == lost
    assert {use.uid for use in reading.uses} == {"uid-ml", "uid-frigate"}


def test_a_pod_without_a_budget_is_known_if_the_exporter_knows_the_ledger() -> None:
    assert all(use.declares for use in parse(text()).uses or ())
    told = parse(text(uses=(ML, replace(FRIGATE, declares=False))))
    assert {use.uid: use.declares for use in told.uses} == {"uid-ml": True, "uid-frigate": False}
