"""Whose memory it is: nothing is lost, nothing counted twice, nothing unknown shown as known."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from agents.exporter import attribution
from agents.exporter.attribution import DeviceUse
from agents.node.cgroup import Container, ProcError
from agents.telemetry.device import Device, Occupancy, Process, Scan
from tests.support.exporters import card

CHAT, VISION = Container("pod-1", "a"), Container("pod-2", "b")
OWNERS = {1: CHAT, 2: CHAT, 3: VISION, 9: None}
USED: Device = replace(card(5360), used_bytes=10_000)


def attribute(
    occupancies: Sequence[Occupancy], container_of: Callable[[int], Container | None]
) -> tuple[DeviceUse, ...]:
    return attribution.attribute(Scan(tuple(occupancies)), container_of).uses


def test_what_cannot_be_read_stands_beside_what_can() -> None:
    scan = Scan((Occupancy(USED),), {1: "gpu 1: NVML: GPU is lost"})
    found = attribution.attribute(scan, OWNERS.get)
    assert ([use.device for use in found.uses], found.unreadable) == ([USED], {1: "gpu 1: NVML: GPU is lost"})


def test_a_process_whose_control_group_cannot_be_read_is_one_of_unknown_use() -> None:
    """Of that device nobody's use is known then, and of the others it is."""

    def container_of(pid: int) -> Container | None:
        if pid == 1:
            raise ProcError("process 1: its control group cannot be read")
        return OWNERS[pid]

    second = replace(USED, gpu=1, uuid="GPU-1")
    uses = attribute([Occupancy(USED, (Process(1, 3000),)), Occupancy(second, (Process(3, 1000),))], container_of)
    assert [use.unknown_processes for use in uses] == [1, 0]
    assert [use.used_bytes for use in uses] == [{}, {VISION: 1000}]


def test_a_containers_processes_add_up_and_the_rest_is_unattributed() -> None:
    processes = (Process(1, 3000), Process(2, 500), Process(3, 2000), Process(9, 700))
    (use,) = attribute([Occupancy(USED, processes)], OWNERS.get)
    assert use.used_bytes == {CHAT: 3500, VISION: 2000}
    assert (use.unattributed_bytes, use.unknown_processes) == (4500, 0)


def test_each_device_has_its_own_sums() -> None:
    second = replace(USED, gpu=1, uuid="GPU-1")
    uses = attribute([Occupancy(USED, (Process(1, 3000),)), Occupancy(second, (Process(1, 1000),))], OWNERS.get)
    assert [use.used_bytes for use in uses] == [{CHAT: 3000}, {CHAT: 1000}]


def test_a_container_with_a_process_of_unknown_use_has_no_sum_at_all() -> None:
    processes = (Process(1, 3000), Process(2, None), Process(3, 2000))
    (use,) = attribute([Occupancy(USED, processes)], OWNERS.get)
    assert use.used_bytes == {VISION: 2000}
    assert (use.unattributed_bytes, use.unknown_processes) == (8000, 1)


def test_an_unknown_process_of_the_host_is_told_of_and_hides_no_container() -> None:
    (use,) = attribute([Occupancy(USED, (Process(9, None), Process(3, 2000)))], OWNERS.get)
    assert (use.used_bytes, use.unknown_processes) == ({VISION: 2000}, 1)


def test_processes_that_add_up_to_more_than_the_device_shows_leave_nothing_unattributed() -> None:
    (use,) = attribute([Occupancy(USED, (Process(1, 9000), Process(3, 2000)))], OWNERS.get)
    assert use.unattributed_bytes == 0


processes = st.lists(
    st.builds(Process, st.integers(1, 50), st.none() | st.integers(0, 10_000)), max_size=30, unique_by=lambda p: p.pid
)


@given(processes, st.dictionaries(st.integers(1, 50), st.sampled_from([CHAT, VISION, None])), st.integers(0, 10**6))
def test_no_byte_of_a_known_process_is_lost_and_none_is_counted_twice(
    listed: list[Process], owners: dict[int, Container | None], used_bytes: int
) -> None:
    device = replace(USED, used_bytes=used_bytes)
    (use,) = attribute([Occupancy(device, tuple(listed))], owners.get)
    hidden = {owners.get(p.pid) for p in listed if p.used_bytes is None}
    for container in (CHAT, VISION):
        of_it = [p.used_bytes for p in listed if owners.get(p.pid) == container]
        expected = sum(of_it) if of_it and container not in hidden else None
        assert use.used_bytes.get(container) == expected
    assert use.unknown_processes == sum(p.used_bytes is None for p in listed)
    assert use.unattributed_bytes == max(used_bytes - sum(use.used_bytes.values()), 0)
