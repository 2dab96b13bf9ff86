"""Chooses the pod that the kernel would kill, with the badness that the proof of host memory uses."""

from collections.abc import Iterable

from tenancy.host_memory.oom import PodState, badness_pages


def kernel_victim(states: Iterable[PodState], total_mib: int) -> PodState | None:
    """Returns the pod with the highest badness, or None if there is no pod.

    Also returns None if several pods have the highest badness, because the kernel's internal order would decide.
    Unknown use counts as 0.
    """
    scores = [(badness_pages(s.resident_mib or 0, s.oom_score_adj, total_mib), s) for s in states]
    highest = max((score for score, _ in scores), default=0)
    chosen = [state for score, state in scores if score == highest]
    return chosen[0] if len(chosen) == 1 else None
