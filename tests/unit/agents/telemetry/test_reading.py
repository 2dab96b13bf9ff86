"""An exporter's answer is believed when it is whole, fresh and possible."""

from collections.abc import Sequence

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


def test_it_tells_the_devices_and_who_uses_them() -> None:
    reading = parse(text())
    assert (reading.devices, reading.age_seconds, reading.uses_problem) == ((CARD,), 1, None)
    assert reading.uses == (
        PodUse(uid="uid-frigate", namespace="frigate", pod="frigate-0", uuid="GPU-0", used_bytes=1_900 * MIB),
        PodUse(uid="uid-ml", namespace="immich", pod="immich-ml-0", uuid="GPU-0", used_bytes=2_000 * MIB),
    )


def test_the_containers_of_a_pod_add_up() -> None:
    more = 'gpu_pod_memory_used_bytes{namespace="immich",pod="immich-ml-0",pod_uid="uid-ml",container="b",%s} 5\n'
    reading = parse(text() + more % 'gpu="0",uuid="GPU-0"')
    assert reading.uses is not None
    assert [use.used_bytes for use in reading.uses if use.uid == "uid-ml"] == [2_000 * MIB + 5]


def test_an_idle_card_has_users_none_and_is_not_unknown() -> None:
    assert parse(text(uses=())).uses == ()


def test_a_sample_may_be_thirty_seconds_old() -> None:
    assert parse(text(age_seconds=30)).devices == (CARD,)
    with pytest.raises(TelemetryError, match="needed is one of at most 30 s") as stale:
        parse(text(age_seconds=30.1))
    assert stale.value.trouble is Trouble.STALE


def test_without_unattributed_memory_the_devices_are_believed_and_the_users_not_known() -> None:
    reading = parse(without(text(), "unattributed"))
    assert (reading.devices, reading.uses) == ((CARD,), None)


def test_a_process_whose_memory_nvml_does_not_tell_leaves_the_users_unknown() -> None:
    reading = parse(text() + 'gpu_memory_unknown_processes{gpu="0",uuid="GPU-0"} 2\n')
    assert (reading.uses, reading.uses_problem) == (None, "NVML does not report the memory of 2 processes")


@pytest.mark.parametrize(("apart_mib", "believed"), [(768, True), (769, False), (-768, True), (-769, False)])
def test_pods_and_device_may_be_a_twentieth_of_the_device_apart(apart_mib: int, believed: bool) -> None:
    changed = text().replace(f" {2_000 * MIB}\n", f" {(2_000 + apart_mib) * MIB}\n")
    if believed:
        assert parse(changed).uses
        return
    with pytest.raises(TelemetryError, match="are unattributed, the device says 4350") as error:
        parse(changed)
    assert error.value.trouble is Trouble.IMPLAUSIBLE


def without(text: str, part: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if part not in line)


def doubled(text: str, part: str, old: str = "", new: str = "") -> str:
    """With each line that holds the part once more, changed."""
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
        (text().replace(f" {11_010 * MIB}\n", f" {11_011 * MIB}\n"), "are more than the device has"),
        (text().replace(f" {11_010 * MIB}\n", " 0\n"), "are far less than the device has"),
        (text().replace(f" {11_010 * MIB}\n", " NaN\n"), "impossible series"),
        (text().replace(f" {11_010 * MIB}\n", " -1\n"), "impossible series"),
        (text().replace('gpu="0"', 'gpu="x"'), "impossible series"),
        (doubled(text(), "gpu_device"), "impossible series"),
        (doubled(text(), "gpu_device", "GPU-0", "GPU-1"), "two devices have one index or one uuid"),
        (doubled(text(), "gpu_device", 'gpu="0"', 'gpu="1"'), "two devices have one index or one uuid"),
        (doubled(text(), "uid-ml"), "impossible series"),
        (doubled(text(), "uid-ml", "GPU-0", "GPU-1"), "impossible series"),
        (text().replace('pod_uid="uid-ml"', 'pod_uid=""'), "impossible series"),
        (doubled(text(), "unattributed", 'gpu="0",uuid="GPU-0"', 'gpu="1",uuid="GPU-1"'), "missing for some device"),
        (text()[:-1], "is truncated"),
        ("<html>404</html>\n", "not a sample"),
    ],
)
def test_what_is_missing_partial_or_impossible_is_refused(wrong: str, words: str) -> None:
    with pytest.raises(AgentError, match=words):
        parse(wrong)


def test_series_that_are_none_of_ours_are_passed_over() -> None:
    assert parse(f'{text()}gpu_pod_memory_declared_bytes{{pod="a"}} 5\n') == parse(text())
