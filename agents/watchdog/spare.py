"""Decides which offenders must not be recycled, and gives the reasons."""

from datetime import timedelta

from agents.watchdog.pods import GpuPod
from agents.watchdog.snapshot import LATE_SECONDS, Snapshot
from agents.watchdog.types import RecycleTarget, Spared


def reason_to_spare(snapshot: Snapshot, target: RecycleTarget) -> Spared | None:
    """Returns the reason why the target must not be recycled, or None if it may be recycled."""
    reasons = [_never(snapshot, pod) for pod in target.pods]
    if reasons[0] is not None and None not in reasons:
        return Spared(target=target, why=reasons[0], lasting=True)
    why = _not_now(snapshot, target)
    return None if why is None else Spared(target=target, why=why)


def _never(snapshot: Snapshot, pod: GpuPod) -> str | None:
    if pod.gone_by is not None and snapshot.now >= pod.gone_by + timedelta(seconds=LATE_SECONDS):
        return f"it is terminating, was due to be gone by {pod.gone_by:%H:%M:%S} and still holds its memory"
    if pod.namespace not in snapshot.limits.tenants:
        return f"{pod.namespace} is not a tenant with a budget, so the watchdog may not evict there"
    if _is_capped(snapshot, pod):
        return (
            "the driver holds it to its budget, so that it took the rest by a way that is not counted, such as "
            "managed memory"
        )
    if pod.owner is None and not pod.stops_with_its_work:
        return "no controller would recreate it"
    if pod.static:
        return "it is a static pod of its node's kubelet"
    return None


def _is_capped(snapshot: Snapshot, pod: GpuPod) -> bool:
    caps = [cap for cap in snapshot.readings_by_node[pod.node].caps if cap.uid == pod.uid]
    return bool(caps) and not any(cap.why_not for cap in caps)


def _not_now(snapshot: Snapshot, target: RecycleTarget) -> str | None:
    limits, now = snapshot.limits, snapshot.now
    if target.age_seconds < limits.minimum_age_seconds:
        return f"it is {target.age_seconds:.0f} s old; it is left alone for {limits.minimum_age_seconds} s"
    last = max((each.at for each in snapshot.counted if each.workload == target.workload), default=None)
    # An eviction of a terminating pod can only shorten the pod's grace period. The cool-down does not apply to the
    # eviction of a terminating pod.
    if last is not None and now - last < timedelta(seconds=limits.cool_down_seconds) and target.first.gone_by is None:
        ago = (now - last).total_seconds()
        return f"it was recycled {ago:.0f} s ago; it is left alone for {limits.cool_down_seconds} s"
    why = snapshot.refused.get(target.workload)
    return None if why is None else f"its recycle was refused, and the next run tries again: {why}"
