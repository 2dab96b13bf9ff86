"""Makes the extender's Events on pods. An Event reports why a pod got its devices, that a seat's pod is delayed, or
that a device is lost.
"""

from collections.abc import Iterable, Sequence

from agents.extender.cache.node_info import Shortage
from agents.extender.cache.pod_info import PodInfo
from agents.kube.events import Event, Reference
from tenancy.names import EVENT_DEVICE_LOST, EVENT_PLACED, EVENT_SEAT_HELD, EVENT_SEAT_OVERCROWDED

_NAMED = 3  # the maximum number of devices in an Event, and of pods for each of these devices


def held_event(pod: Reference, short: Sequence[Shortage], hold_seconds: float) -> Event:
    return Event(
        regarding=pod,
        reason=EVENT_SEAT_HELD,
        action="Schedule",
        warning=True,
        note=f"the ledger has room for this seat, but memory in use keeps it from loading: {_shortages(short)}. It is "
        f"placed anyway after {hold_seconds:.0f} s",
    )


def placed_event(pod: Reference, why: str, short: Sequence[Shortage]) -> Event:
    """Returns the Event of a placement. `short` has the shortages of a seat on memory that other pods use."""
    crowd = (
        f". Memory in use may keep it from loading: {_shortages(short)}. Pods over their budgets must give memory "
        "back: lower their use, or delete them"
    )
    return Event(
        regarding=pod,
        reason=EVENT_SEAT_OVERCROWDED if short else EVENT_PLACED,
        action="Binding",
        warning=bool(short),
        note=f"{why}{crowd if short else ''}",
    )


def lost_event(pod: PodInfo) -> Event:
    return Event(
        regarding=Reference(api_version="v1", kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid),
        reason=EVENT_DEVICE_LOST,
        action="Compare",
        warning=True,
        note=f"{pod.node} no longer has the device that was chosen for this pod ({', '.join(pod.uuids or ())}): its "
        "containers cannot start again there. Delete the pod, and its replacement is placed on another device",
    )


def _shortages(short: Sequence[Shortage]) -> str:
    least = sorted(short, key=lambda each: (each.mib, each.node, each.index))
    shown = [f"{each.node}, gpu {each.index} lacks {each.mib} MiB ({_holders(each)})" for each in least[:_NAMED]]
    return "; ".join(shown) + _more(least, "devices")


def _holders(shortage: Shortage) -> str:
    if not shortage.holders:
        return "no pod is known to be over its budget there"
    named = ", ".join(map(str, shortage.holders[:_NAMED]))
    return f"over their budgets there: {named}{_more(shortage.holders, 'pods')}"


def _more(items: Iterable[object], what: str) -> str:
    rest = len([*items]) - _NAMED
    return f", and {rest} more {what}" if rest > 0 else ""
