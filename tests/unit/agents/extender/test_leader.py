"""Who leads, by the Lease."""

from typing import Any

import pytest

from agents.leadership import LeaseLeadership
from tests.agents.cluster import Served


def lease(holder: str | None, renewed: str = "1", seconds: int = 15) -> dict[str, Any]:
    return {"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": seconds}}


class Gains(list[float]):
    """When leadership was gained."""


@pytest.fixture
def gains() -> Gains:
    return Gains()


@pytest.fixture
def leadership(served: Served, gains: Gains) -> LeaseLeadership:
    clock = served.time.clock()
    return LeaseLeadership(
        api=served.api(), namespace="s", name="l", holder="pod-1", clock=clock, log=served.log(),
        gained=lambda: gains.append(clock.monotonic()),
    )  # fmt: skip


def test_nobody_leads_before_the_lease_was_seen(leadership: LeaseLeadership) -> None:
    assert leadership.since is None


def test_it_leads_while_its_own_pods_scheduler_holds_the_lease(leadership: LeaseLeadership, gains: Gains) -> None:
    leadership.see(lease("pod-1_uuid"))
    assert leadership.since == 0.0
    assert gains == [0.0]


@pytest.mark.parametrize("holder", ["pod-10_uuid", "pod-2_uuid", "pod-1", "", None])
def test_another_holder_is_not_this_pod(leadership: LeaseLeadership, gains: Gains, holder: str | None) -> None:
    leadership.see(lease(holder))
    assert leadership.since is None
    assert gains == []


def test_a_renewal_changes_nothing(leadership: LeaseLeadership, served: Served, gains: Gains) -> None:
    leadership.see(lease("pod-1_uuid"))
    served.time.seconds = 10
    leadership.see(lease("pod-1_uuid", renewed="2"))
    served.time.seconds = 24
    assert leadership.since == 0.0
    assert gains == [0.0]


def test_a_lease_that_is_not_renewed_in_time_leads_no_more(leadership: LeaseLeadership, served: Served) -> None:
    leadership.see(lease("pod-1_uuid"))
    served.time.seconds = 14
    leadership.see(lease("pod-1_uuid"))  # listed again: the same one
    served.time.seconds = 15
    assert leadership.since is None


def test_who_leads_again_begins_anew(leadership: LeaseLeadership, served: Served, gains: Gains) -> None:
    leadership.see(lease("pod-1_uuid"))
    served.time.seconds = 5
    leadership.see(lease("pod-2_uuid", renewed="2"))
    assert leadership.since is None
    served.time.seconds = 9
    leadership.see(lease("pod-1_uuid", renewed="3"))
    assert leadership.since == 9.0
    assert gains == [0.0, 9.0]


def test_a_lease_that_is_gone_has_no_leader(leadership: LeaseLeadership) -> None:
    leadership.see(lease("pod-1_uuid"))
    leadership.see(None)
    assert leadership.since is None
