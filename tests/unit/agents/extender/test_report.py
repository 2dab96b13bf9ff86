"""Tests the extender's Events on pods. An Event never delays the placement of a pod."""

from agents.extender.cache.node_info import Shortage
from agents.extender.cache.reading import UndeclaredUse
from agents.extender.report import held_event
from agents.kube.events import Reference

POD = Reference(api_version="v1", kind="Pod", namespace="team", name="model", uid="u")
SHORT = (
    Shortage(node="k8s-node1", pool="t4", index=1, mib=2000, floor_mib=1536),
    Shortage(
        node="k8s-node1",
        pool="t4",
        index=0,
        mib=1536,
        floor_mib=1536,
        holders=tuple(UndeclaredUse("frigate", f"cam-{number}", 4000 - number) for number in range(5)),
    ),
)
LACKS = (
    "k8s-node1, gpu 0 lacks 1536 MiB (over their budgets there: frigate/cam-0 by 4000 MiB, frigate/cam-1 by 3999 MiB, "
    "frigate/cam-2 by 3998 MiB, and 2 more pods); k8s-node1, gpu 1 lacks 2000 MiB (no pod is known to be over its "
    "budget there)"
)


def test_a_seat_that_is_held_back_is_told_what_lacks_who_has_it_and_for_how_long() -> None:
    event = held_event(POD, SHORT, 60)
    assert (event.reason, event.warning, event.regarding) == ("GpuSeatHeldBack", True, POD)
    assert event.note == (
        f"the ledger has room for this seat, but memory in use keeps it from loading: {LACKS}. It is placed anyway "
        "after 60 s"
    )
