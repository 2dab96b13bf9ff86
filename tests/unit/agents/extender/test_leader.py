"""Tests how the Lease decides which extender leads."""

from typing import Any

import pytest

from agents.extender.leader import FENCE_SECONDS, LeaseWatcher
from tests.support.fake_cluster import Served


def lease(holder: str | None, renewed: str = "1", seconds: int = 15, transitions: int = 0) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": seconds}
    return {"spec": {**spec, "leaseTransitions": transitions}}


class Gains(list[float]):
    pass


@pytest.fixture
def gains() -> Gains:
    return Gains()


@pytest.fixture
def leadership(served: Served, gains: Gains) -> LeaseWatcher:
    clock = served.time.clock()
    return LeaseWatcher(
        api=served.api(), namespace="s", name="l", holder="pod-1", clock=clock, log=served.log(),
        gained=lambda: gains.append(clock.monotonic()),
    )  # fmt: skip


def test_it_leads_while_its_own_pods_scheduler_holds_the_lease(leadership: LeaseWatcher, gains: Gains) -> None:
    leadership.see(lease("pod-1_uuid"))
    assert leadership.since == 0.0
    assert gains == [0.0]


@pytest.mark.parametrize("holder", ["pod-10_uuid", "pod-2_uuid", "pod-1", "", None])
def test_another_holder_is_not_this_pod(leadership: LeaseWatcher, gains: Gains, holder: str | None) -> None:
    leadership.see(lease(holder))
    assert leadership.since is None
    assert gains == []


def test_a_lease_that_is_not_renewed_in_time_leads_no_more(leadership: LeaseWatcher, served: Served) -> None:
    leadership.see(lease("pod-1_uuid"))
    served.time.seconds = 14
    leadership.see(lease("pod-1_uuid"))
    served.time.seconds = 15
    assert leadership.since is None


def test_a_new_leader_begins_after_the_last_bind_of_the_earlier_leader(
    leadership: LeaseWatcher, served: Served, gains: Gains
) -> None:
    leadership.see(lease("pod-1_uuid"))
    served.time.seconds = 5
    leadership.see(lease("pod-2_uuid", renewed="2", transitions=1))
    assert leadership.since is None
    for seconds, renewed in ((20, "3"), (20 + FENCE_SECONDS - 1, "4")):
        served.time.seconds = seconds
        leadership.see(lease("pod-1_uuid", renewed=renewed, transitions=2))
        assert leadership.since is None
    served.time.seconds = 20 + FENCE_SECONDS + 1
    leadership.see(lease("pod-1_uuid", renewed="5", transitions=2))
    assert leadership.since == 20.0 + FENCE_SECONDS + 1
    assert gains == [0.0, leadership.since]


def test_an_extender_that_starts_again_waits_for_its_own_last_bind(leadership: LeaseWatcher, served: Served) -> None:
    leadership.see(lease("pod-1_uuid", transitions=7))
    assert leadership.since is None
    served.time.seconds = FENCE_SECONDS
    leadership.see(lease("pod-1_uuid", renewed="2", transitions=7))
    assert leadership.since == float(FENCE_SECONDS)
