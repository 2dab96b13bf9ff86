"""Describes the GPU memory of each workload over time, in two recorded incidents on a T4."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tenant:
    name: str
    wants: Callable[[int], int]


def steady(mib: int) -> Callable[[int], int]:
    return lambda _: mib


def growing(begin_mib: int, end_mib: int, *, after: int = 0, seconds: int) -> Callable[[int], int]:
    return lambda age: begin_mib + round((end_mib - begin_mib) * min(max(age - after, 0), seconds) / seconds)


def _household(*others: Tenant) -> tuple[Tenant, ...]:
    return (
        Tenant(name="frigate", wants=steady(1900)),
        Tenant(name="portal-stt", wants=steady(1500)),
        *others,
    )


def _arena(seconds: int, after: int) -> tuple[Tenant, ...]:
    """The incident of 2026-06-02: the use of immich-ml grows from 2,000 to 10,700 MiB."""
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
# The incident of 2026-07-07: two workloads use 6996 and 6750 MiB, far above their budgets.
CRASH_LOOP = Replay(
    _household(
        Tenant(name="immich-ml", wants=steady(2000)),
        Tenant(name="llama-swap", wants=growing(0, 6996, seconds=4)),
        Tenant(name="immich-server", wants=growing(0, 6750, seconds=4)),
    ),
    2 * 3600,
)
