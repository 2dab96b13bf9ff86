"""Describes the memory of tenants on one T4 in the two incidents on record, as curves by the second."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """Holds a Deployment of one pod. `wants` maps the seconds since the container's start to MiB."""

    name: str
    wants: Callable[[int], int]


def steady(mib: int) -> Callable[[int], int]:
    return lambda _: mib


def growing(begin_mib: int, end_mib: int, *, after: int = 0, seconds: int) -> Callable[[int], int]:
    """Returns the curve from one amount to another within so many seconds, and no further."""
    return lambda age: begin_mib + round((end_mib - begin_mib) * min(max(age - after, 0), seconds) / seconds)


def _household(*others: Tenant) -> tuple[Tenant, ...]:
    return (
        Tenant(name="frigate", wants=steady(1900)),
        Tenant(name="portal-stt", wants=steady(1500)),
        *others,
    )


def _arena(seconds: int, after: int) -> tuple[Tenant, ...]:
    """Replays 2026-06-02: immich-ml's arena grows from 2 to 10.7 GB while the others use the amounts that were
    measured.

    llama-swap runs on the same device. It loads and unloads a model of 4350 MiB every five minutes.
    """
    return _household(
        Tenant(name="immich-server", wants=steady(1200)),
        Tenant(name="immich-ml", wants=growing(2000, 10_700, after=after, seconds=seconds)),
        Tenant(name="llama-swap", wants=lambda age: 4350 if age // 300 % 2 == 0 else 600),
    )


@dataclass(frozen=True)
class Replay:
    tenants: tuple[Tenant, ...]
    seconds: int


DRIFT = Replay(_arena(7200, 0), 3600)
BURST = Replay(_arena(60, 610), 1800)
# 2026-07-07: two budgets were wrong from the start: 5000 for 6996, and 1800 for 6750. Both do not fit the device
# together.
CRASH_LOOP = Replay(
    _household(
        Tenant(name="immich-ml", wants=steady(2000)),
        Tenant(name="llama-swap", wants=growing(0, 6996, seconds=4)),
        Tenant(name="immich-server", wants=growing(0, 6750, seconds=4)),
    ),
    2 * 3600,
)
