"""Draws stack files from a seed. A stack that fails the checks of the settings is drawn again. Units: MiB."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

from stacks import settings
from tenancy import sums
from tenancy.devices.spread import AlikeNodes, fits_on_separate_nodes
from tenancy.ledger import Ledger, Pool
from tests.support import prod

_DRAWS = 200
# The reserve and the floor for each size of device.
_DEVICES = {8192: (900, 700), 15360: (1360, 1536), 24576: (1800, 2048)}
_RESERVED_MIB = 450
_PRIORITIES = ("tier-2-gpu", "homelab-critical")
_SEATS = ("arena", "bard", "chat", "dub", "echo", "focus", "glyph")
_GATED = ("kiln", "loom", "mill")
QUEUE_TENANTS = ("team-a", "team-b")


def config(seed: int) -> prod.Raw:
    dice = Random(seed)  # noqa: S311 (a simulation)
    for _ in range(_DRAWS):
        drawn = _drawn(dice)
        if is_valid(drawn):
            return drawn
    raise ValueError(f"seed {seed}: none of {_DRAWS} stack files is valid")


def is_valid(raw: prod.Raw) -> bool:
    try:
        ledger = settings.parse(raw).ledger()
    except settings.ConfigError:
        return False
    return not any(sums.contradictions(ledger)) and all(_seats_fit(ledger, pool) for pool in ledger.shared_pools)


def _seats_fit(ledger: Ledger, pool: Pool) -> bool:
    requests: Counter[tuple[int, int]] = Counter()
    for seat in ledger.seats_in(pool.name):
        requests[seat.gpumem_mib, seat.devices_per_pod] += seat.replicas
    alike = AlikeNodes(nodes=pool.nodes, device_count=pool.device_count, device_mib=pool.device_mib)
    return fits_on_separate_nodes(requests, alike)


def _drawn(dice: Random) -> prod.Raw:
    raw = prod.raw()
    pools = {f"pool-{letter}": _pool(dice, letter) for letter in "abc"[: dice.choices((1, 2, 3), (4, 4, 1))[0]]}
    if sum(pool["nodes"] for pool in pools.values()) > 4:
        pools = {name: pool | {"nodes": 1} for name, pool in pools.items()}
    residents = dict(_seats(dice, pools))
    gated = {name: _on_demand(dice, name, pools) for name in dice.sample(_GATED, dice.choice((1, 2, 2, 3)))}
    unbudgeted: prod.Raw = {}
    if dice.random() < 0.7:
        unbudgeted["spare"] = {"tenant": "spare", "pool": dice.choice([*pools]), "measured_mib": 150}
    kept = ("cluster", "priorities", "kueue", "reconcile", "exporter", "scheduler")
    drawn: prod.Raw = {name: raw[name] for name in kept} | {
        "pools": pools,
        "residents": residents,
        "on_demand": gated,
        "unbudgeted": unbudgeted,
        "watchdog": {
            "armed": True,
            "least_free_mib": dice.choice((0, 512)),
            "evictions_per_hour": dice.choice((2, 4)),
        },
        "gate": {"armed": True},
        "admission": {"gpu_priority": "gpu-workload", "exempt_namespaces": ["nvidia"]},
    }
    if dice.random() < 0.6:
        drawn["queues"] = _queues(dice, raw, pools, residents)
    tenants = {each["tenant"] for part in (residents, gated, unbudgeted) for each in part.values()}
    queued = QUEUE_TENANTS if "queues" in drawn else ()
    drawn["tenants"] = {name: {} for name in (*sorted(tenants), *queued)}
    ranked = sorted({seat["tenant"] for seat in residents.values()})
    low = {name: dice.choice(_PRIORITIES) for name in ranked if dice.random() < 0.6}
    guests = sorted({gate["tenant"] for gate in gated.values()})
    drawn["admission"]["tenant_priorities"] = low | dict.fromkeys(guests, "tier-2-gpu")
    return drawn


def _pool(dice: Random, letter: str) -> prod.Raw:
    memory_mib = dice.choice([*_DEVICES])
    reserve_mib, floor_mib = _DEVICES[memory_mib]
    return {
        "node_selector": {"nvidia.com/gpu.present": "true", "pool": letter},
        "nodes": dice.choices((1, 2, 3), (5, 4, 1))[0],
        "device_count": dice.choices((1, 2, 4), (4, 4, 1))[0],
        "memory_mib": memory_mib,
        "reserve_mib": reserve_mib,
        "driver_reserved_mib": _RESERVED_MIB,
        "floor_mib": dice.choice((floor_mib, floor_mib // 2)),
        **({"assumed": True} if dice.random() < 0.08 else {}),
    }


def _seats(dice: Random, pools: prod.Raw) -> Iterator[tuple[str, prod.Raw]]:
    names = [*_SEATS]
    for name, pool in pools.items():
        device_mib = pool["memory_mib"] - pool["reserve_mib"]
        left = pool["nodes"] * pool["device_count"] * device_mib * dice.choice((0.6, 0.85, 1.0))
        for _ in range(max(len(_SEATS) // len(pools), 2)):
            mib = dice.choice((800, 1500, 2000, 3000, 5000, device_mib // 2, device_mib - 1000))
            devices = 2 if pool["device_count"] > 1 and dice.random() < 0.25 else 1
            replicas = 2 if dice.random() < 0.3 else 1
            if not names or mib * devices * replicas > left:
                continue
            left -= mib * devices * replicas
            seat = names.pop(0)
            tenant = f"duo-{name}" if dice.random() < 0.25 else seat
            several: dict[str, Any] = {"devices_per_pod": devices} if devices > 1 else {}
            yield seat, {"tenant": tenant, "pool": name, "gpumem_mib": mib, "replicas": replicas, **several}


def _on_demand(dice: Random, name: str, pools: prod.Raw) -> prod.Raw:
    pool = dice.choice([*pools])
    url = {"url": f"http://{name}-queue.{name}.svc/status", "field": "pending"}
    probe: dict[str, Any] = {} if dice.random() < 0.2 else {"http_json": url}
    return {"tenant": name, "pool": pool, "need_mib": dice.choice((600, 1024, 2048)), "idle_seconds": 120, **probe}


def _queues(dice: Random, raw: prod.Raw, pools: prod.Raw, residents: prod.Raw) -> prod.Raw:
    pool = dice.choice([*pools])
    mine = [name for name, seat in residents.items() if seat["pool"] == pool]
    nominal = 1500
    if len(mine) > 1:
        seat = residents.pop(mine[-1])
        nominal = seat["gpumem_mib"] * seat["replicas"] * seat.get("devices_per_pod", 1)
    resource = f"{raw['cluster']['resource_domain']}/gpumem"
    return {
        "flavors": {"share": {"pool": pool}},
        "cluster_queues": {"share-cq": {"quotas": {"share": {resource: {"nominal": nominal}}}}},
        "local_queues": {f"{name}-share": {"tenant": name, "cluster_queue": "share-cq"} for name in QUEUE_TENANTS},
        "workload_priorities": raw["queues"]["workload_priorities"],
    }
