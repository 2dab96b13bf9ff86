"""Describes two recorded incidents on one T4: the GPU memory that each workload uses over time."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """Describes a Deployment with one pod.

    `wants` maps the seconds since the container's start to the MiB that the container uses.
    """

    name: str
    wants: Callable[[int], int]


def steady(mib: int) -> Callable[[int], int]:
    return lambda _: mib


def growing(begin_mib: int, end_mib: int, *, after: int = 0, seconds: int) -> Callable[[int], int]:
    """Returns a function that grows linearly from `begin_mib` to `end_mib` during `seconds` after `after`."""
    return lambda age: begin_mib + round((end_mib - begin_mib) * min(max(age - after, 0), seconds) / seconds)


def _household(*others: Tenant) -> tuple[Tenant, ...]:
    return (
        Tenant(name="frigate", wants=steady(1900)),
        Tenant(name="portal-stt", wants=steady(1500)),
        *others,
    )


def _arena(seconds: int, after: int) -> tuple[Tenant, ...]:
    """Describes the incident of 2026-06-02: the use of immich-ml grows from 2,000 to 10,700 MiB.

    The other workloads use the measured amounts. llama-swap runs on the same device, and loads and unloads a model of
    4350 MiB every five minutes.
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
# The incident of 2026-07-07. Two budgets were too small from the start: 5000 MiB for a use of 6996 MiB, and 1800 MiB
# for a use of 6750 MiB. The two workloads do not fit on the device together.
CRASH_LOOP = Replay(
    _household(
        Tenant(name="immich-ml", wants=steady(2000)),
        Tenant(name="llama-swap", wants=growing(0, 6996, seconds=4)),
        Tenant(name="immich-server", wants=growing(0, 6750, seconds=4)),
    ),
    2 * 3600,
)
