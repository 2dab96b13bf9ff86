"""What `kubectl gpumem fit` costs to compute: `python -m tests.benchmarks.fit`, which fails above 5 s of CPU.

1,000 nodes with 8 devices of 80,000 MiB each, and 4,000 seats: the search alone, of the devices as they are held and of
promises; and the whole command of a stack file, read, searched, and what it proposes judged by settings and gate. Such
a file has 1,000 seats of four replicas: more do not fit into what the engine hands on (docs/benchmarks.md, A limit).
The whole command of a cluster is in tests/benchmarks/gpumem.py.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from tenancy.fit.lower import lower, nodes_needed
from tenancy.fit.plan import Plan, Wanted
from tenancy.fit.rearrange import Budget, DeviceRoom, Lying, rearrange
from tenancy.ledger import Ledger, Pool, Seat
from tenancy.names import PROJECT
from tests.support.paths import ROOT
from tests.support.prod import raw

NODES, DEVICES, SEATS = 1000, 8, 4000
MIB = 80_000
LIMIT_SECONDS = 5.0
Held = tuple[list[DeviceRoom], list[Lying], dict[str, Budget]]


def held(least: int, most: int, *, nodes: int = NODES, spare_mib: int | None = None) -> Held:
    """Seats of that size, spread over the devices; on none is more than `spare_mib` free, where given."""
    dice = random.Random(1)  # noqa: S311
    room = [MIB] * (nodes * DEVICES)
    order = dice.sample(range(len(room)), len(room))
    pods, seats = [], {}
    for number in range(SEATS):
        mib = dice.randrange(least, most, 256)
        device = order[number % len(order)]
        if room[device] < mib:
            continue
        room[device] -= mib
        name = f"seat-{number}"
        pods.append(Lying(name=name, device=device, mib=mib, seat=name))
        seats[name] = Budget(mib=mib, least_mib=mib // 2)
    if spare_mib is not None:
        room = [min(mib, spare_mib - index * 7919 % (spare_mib // 3)) for index, mib in enumerate(room)]
    devices = [DeviceRoom(node=f"node-{i // DEVICES}", name=f"gpu-{i}", room_mib=mib) for i, mib in enumerate(room)]
    return devices, pods, seats


def promised(least: int, most: int, nodes: int) -> tuple[Ledger, Pool]:
    """Seats of that size on so many nodes."""
    dice = random.Random(1)  # noqa: S311
    pool = Pool(
        name="p",
        node_selector={"pool": "p"},
        nodes=nodes,
        device_count=DEVICES,
        memory_mib=MIB + 2000,
        reserve_mib=2000,
        floor_mib=2000,
    )
    seats = tuple(
        Seat(name=f"s{n}", tenant="t", pool="p", gpumem_mib=dice.randrange(least, most)) for n in range(SEATS)
    )
    return Ledger(domain="example.com", pools=(pool,), seats=seats), pool


def measure(name: str, ask: Callable[[], Plan | None]) -> float:
    """A row of the table; the seconds."""
    began = time.process_time()
    plan = ask()
    seconds = time.process_time() - began
    touched = "no change found" if plan is None else f"{plan.cost[0]} touched, {plan.cost[1]} MiB"
    proven = "" if plan is None else "yes" if plan.proven else f"no: at least {plan.least[0]} touched"
    print(f"| {name} | {touched} | {proven} | {seconds:.2f} |", flush=True)
    return seconds


def stack_file(least: int, most: int, nodes: int) -> str:
    """Prod's, with one pool and these seats instead of its own."""
    dice, config = random.Random(1), raw()  # noqa: S311
    size = {"nodes": nodes, "device_count": DEVICES, "memory_mib": MIB + 2000, "reserve_mib": 2000, "floor_mib": 2000}
    config["pools"] = {"p": {"node_selector": {"pool": "p"}, **size}}
    config["tenants"] = {f"team-{number}": {} for number in range(100)}
    config["residents"] = {
        f"seat-{n}": {
            "tenant": f"team-{n % 100}",
            "pool": "p",
            "gpumem_mib": dice.randrange(least, most),
            "replicas": 4,
        }
        for n in range(SEATS // 4)
    }
    kept = ("cluster", "pools", "tenants", "residents", "reconcile")
    return str(yaml.safe_dump({"config": {f"{PROJECT}:{key}": config[key] for key in kept}}))


def typed(name: str, text: str, *arguments: str) -> float:
    """A row of the table, of the command as it is typed; its seconds of CPU."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Pulumi.bench.yaml").write_text(text)
        command = [sys.executable, "-m", "gpumem", "fit", *arguments, "--stack", "bench", "-o", "json"]
        env, before, began = {"PYTHONPATH": str(ROOT)}, os.times(), time.perf_counter()
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        wall, after = time.perf_counter() - began, os.times()
    found = json.loads(done.stdout)
    (pool,) = found["pools"]
    part = pool["promises"]
    touched = f"{part['touched']} touched, {part['mib']} MiB; patch {'shown' if found['patch'] else 'not shown'}"
    proven = "yes" if part["proven"] else f"no: at least {part['least_touched']} touched"
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"| {name} | {touched} | {proven} | {seconds:.2f} (wall {wall:.2f}) |", flush=True)
    return seconds


def main() -> int:
    some, tight, half = held(10_000, 70_000), held(50_000, 79_000, spare_mib=30_000), held(20_000, 39_000, nodes=250)
    loose, full = promised(10_000, 70_000, NODES), promised(41_000, 78_000, SEATS // DEVICES)
    on_devices: dict[str, tuple[Held, Wanted]] = {
        "held: 60,000 fit": (some, Wanted(mib=60_000)),
        "held: a whole node of 8": (some, Wanted(mib=80_000, count=8)),
        "held: 40,000, nobody can move": (tight, Wanted(mib=40_000)),
        "held: 70,000, nobody can move": (tight, Wanted(mib=70_000)),
        "held: two seats a device, 20 of 78,000": (half, Wanted(mib=78_000, replicas=20)),
        "held: 5,000 of 79,000, where 4,000 fit": (some, Wanted(mib=79_000, replicas=5000)),
    }
    by_sums: dict[str, tuple[tuple[Ledger, Pool], Wanted]] = {
        "promised: 60,000 fit": (loose, Wanted(mib=60_000)),
        "promised: a full pool, 5 of 70,000": (full, Wanted(mib=70_000, replicas=5)),
    }
    print("| case | smallest change | proven | CPU, s |\n|---|---|---|---|")
    most = 0.0
    for name, (case, wanted) in on_devices.items():
        most = max(most, measure(name, lambda case=case, wanted=wanted: rearrange(*case, wanted)))  # type: ignore[misc]
    for name, (pool, wanted) in by_sums.items():

        def both(pool: tuple[Ledger, Pool] = pool, wanted: Wanted = wanted) -> Plan | None:
            nodes_needed(*pool, wanted)
            return lower(*pool, wanted)

        most = max(most, measure(name, both))
    most = max(most, typed("whole command: 60,000 fit", stack_file(10_000, 70_000, NODES), "60000"))
    tight_file = stack_file(41_000, 78_000, SEATS // DEVICES)
    most = max(most, typed("whole command: a full pool, 5 of 70,000", tight_file, "70000", "--replicas", "5"))
    return int(most > LIMIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
