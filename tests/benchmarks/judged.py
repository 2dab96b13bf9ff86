"""Measures the CPU time that our code needs for a large stack (`python -m tests.benchmarks.judged [--nodes 200]`).

One process reads the settings, draws the seating chart and runs all policy rules. Pulumi's own time is not measured.
The table is in docs/choosing/benchmarks.md.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from components.host_memory import host_memory_pools
from policy.graph import Graph
from policy.objects import Object
from policy.rules import RULES, violations
from stacks import platform, settings
from tenancy.chart import seating_chart
from tenancy.host_memory.chart import host_memory_chart
from tests.support.engine import build
from tests.support.paths import ROOT
from tests.support.prod import raw

SIZES_MIB = range(1000, 11_000, 1000)
DEVICES, REPLICAS, SEATS_A_TENANT = 8, 4, 10
_MOST_SECONDS = 10
_SLOWEST = 5

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.judged", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seats", type=int, default=4000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), given.nodes, given.seats)
        print(f"| {given.nodes} nodes, {given.seats} seats, {given.seats * REPLICAS} pods | CPU seconds |")
        print("|---|---|")
        declared, settings_seconds = timed(lambda: settings.load_file(path))
        _, chart_seconds = timed(lambda: chart(declared))
        graph = Graph(tuple(objects(declared)))
        found, rules_seconds = timed(lambda: [*violations(graph)])
    total = settings_seconds + chart_seconds + rules_seconds
    row("settings, read and judged", settings_seconds)
    row("seating chart", chart_seconds)
    row(f"the pack's rules on {len(graph.objects)} objects", rules_seconds)
    row("together", total)
    for name, seconds in slowest(graph):
        row(f"of the rules, {name}", seconds)
    if found:
        raise SystemExit("\n".join(map(str, found)))
    if total > _MOST_SECONDS:
        raise SystemExit(f"that is more than {_MOST_SECONDS} s")


def write(folder: Path, nodes: int, seats: int) -> Path:
    config = raw()
    pool = config["pools"]["t4"]
    pool |= {"nodes": nodes, "device_count": DEVICES, "floor_mib": pool["reserve_mib"]}
    tenants = {f"team-{number}": {} for number in range(seats // SEATS_A_TENANT)}
    residents = {
        f"seat-{number}": {
            "tenant": f"team-{number // SEATS_A_TENANT}",
            "pool": "t4",
            "gpumem_mib": SIZES_MIB[number % len(SIZES_MIB)],
            "replicas": REPLICAS,
        }
        for number in range(seats)
    }
    (folder / "seats.yaml").write_text(json.dumps({"tenants": tenants, "residents": residents}, indent=1))
    path = folder / "Pulumi.large.yaml"
    named: dict[str, Any] = {f"gpu-tenancy:{part}": value for part, value in config.items()}
    path.write_text(json.dumps({"config": {**named, "gpu-tenancy:files": ["seats.yaml"]}}))
    return path


def chart(declared: settings.StackSettings) -> str:
    return seating_chart(declared.ledger()) + host_memory_chart(host_memory_pools(declared.memory_pools))


def objects(declared: settings.StackSettings) -> list[Object]:
    found = []
    for resource in build(lambda: platform.build(declared, ROOT)).resources:
        if resource.type.startswith("kubernetes:"):
            _, module, kind = resource.type.split(":")
            api_version = module.removeprefix("core/")
            manifest = {**resource.inputs, "apiVersion": api_version, "kind": kind}
            found.append(Object(kind, api_version.rpartition("/")[0], manifest, resource.name))
    return found


def slowest(graph: Graph) -> list[tuple[str, float]]:
    seconds = {rule.id: timed(lambda rule=rule: [*rule.check(graph)])[1] for rule in RULES}
    return sorted(seconds.items(), key=lambda each: -each[1])[:_SLOWEST]


def timed(run: Callable[[], T]) -> tuple[T, float]:
    start = time.process_time()
    result = run()
    return result, time.process_time() - start


def row(title: str, seconds: float) -> None:
    print(f"| {title} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
