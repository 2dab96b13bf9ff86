"""Chooses the pod that the kernel would kill."""

from collections.abc import Iterable

from tenancy.host_memory.oom import PodState, badness_pages


def kernel_victim(states: Iterable[PodState], total_mib: int) -> PodState | None:
    """If several pods have the highest badness, returns None, because the kernel's internal order decides."""
    scores = [(badness_pages(s.resident_mib or 0, s.oom_score_adj, total_mib), s) for s in states]
    highest = max((score for score, _ in scores), default=0)
    chosen = [state for score, state in scores if score == highest]
    return chosen[0] if len(chosen) == 1 else None
