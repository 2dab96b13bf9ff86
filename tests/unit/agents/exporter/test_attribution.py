"""Tests that the exporter counts each byte exactly once, and leaves out containers with unknown use."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.exporter.attribution import attribute
from agents.node.cgroup import Container, ProcError
from agents.telemetry.device import Device, Occupancy, Process, Scan
from tests.support.exporters import card

CHAT, VISION = Container("pod-1", "a"), Container("pod-2", "b")
OWNERS = {1: CHAT, 2: CHAT, 3: VISION, 9: None}
USED: Device = replace(card(5360), used_bytes=10_000)
SECOND = replace(USED, gpu=1, uuid="GPU-1")


def test_a_device_that_cannot_be_read_is_next_to_those_that_can() -> None:
    found = attribute(Scan((Occupancy(USED),), {1: "gpu 1: NVML: GPU is lost"}), OWNERS.get)
    assert ([use.device for use in found.uses], found.unreadable) == ([USED], {1: "gpu 1: NVML: GPU is lost"})


@pytest.mark.parametrize("error", [ProcError("process 1: it cannot be read"), OverflowError("too large")])
def test_a_process_whose_control_group_cannot_be_read_hides_the_users_of_its_device_only(error: Exception) -> None:
    def container_of(pid: int) -> Container | None:
        if pid == 1:
            raise error
        return OWNERS[pid]

    scan = Scan((Occupancy(USED, (Process(1, 3000),)), Occupancy(SECOND, (Process(3, 1000),))))
    uses = attribute(scan, container_of).uses
    assert [use.unknown_processes for use in uses] == [1, 0]
    assert [use.used_bytes for use in uses] == [{}, {VISION: 1000}]


processes = st.lists(
    st.builds(Process, st.integers(1, 50), st.none() | st.integers(0, 10_000)), max_size=30, unique_by=lambda p: p.pid
)


@given(processes, st.dictionaries(st.integers(1, 50), st.sampled_from([CHAT, VISION, None])), st.integers(0, 10**6))
def test_no_byte_of_a_known_process_is_lost_and_none_is_counted_twice(
    listed: list[Process], owners: dict[int, Container | None], used_bytes: int
) -> None:
    (use,) = attribute(Scan((Occupancy(replace(USED, used_bytes=used_bytes), tuple(listed)),)), owners.get).uses
    hidden = {owners.get(p.pid) for p in listed if p.used_bytes is None}
    for container in (CHAT, VISION):
        of_it = [p.used_bytes for p in listed if owners.get(p.pid) == container]
        expected = sum(of_it) if of_it and container not in hidden else None
        assert use.used_bytes.get(container) == expected
    assert use.unknown_processes == sum(p.used_bytes is None for p in listed)
    assert use.unattributed_bytes == max(used_bytes - sum(use.used_bytes.values()), 0)
