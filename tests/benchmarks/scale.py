"""Prod with many tenants and nodes on a local cluster, against a tenth of it: `make bench-scale`.

Each size has a new cluster, with GPU nodes and pods that kwok plays and the real node on which the agents run. Requests
are counted from the API server's audit log, so these do not depend on the machine; quote them and the ratios.
"""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.telemetry.resourceslice import SLICES
from tenancy import names
from tests.benchmarks import metered
from tests.benchmarks.metered import Account, Audit, Run
from tests.e2e.rollout import GPU_COUNT, GPUMEM, SYSTEM, Rollout, changes, container, pods
from toolchain.cluster import cluster, prod, simulated
from toolchain.cluster.api import until
from toolchain.cluster.cluster import Cluster
from toolchain.cluster.extent import Extent
from toolchain.workspace import workspace

REPLICAS = 2
SEAT_MIB = 1300  # ten on a node of 14000
FLOOR_MIB = 1360  # what a device that is promised whole leaves free
WRITERS = 8
PATIENCE_SECONDS = 1800
AGENTS = {names.RECONCILE: "reconcile", names.WATCHDOG: "watchdog", names.GATE: "gate"}
ENGINE = "admin"


@dataclass(frozen=True)
class Size:
    """A stack and its cluster, beside what prod has; each tenant has so many seats, of two replicas each."""

    nodes: int
    tenants: int
    seats_a_tenant: int

    @property
    def pods_a_tenant(self) -> int:
        return self.seats_a_tenant * REPLICAS

    @property
    def pods(self) -> int:
        return self.tenants * self.pods_a_tenant

    def __str__(self) -> str:
        return f"{self.nodes} nodes, {self.tenants} tenants, {self.pods} pods"

    @classmethod
    def read(cls, text: str) -> "Size":
        """NODESxTENANTSxSEATS."""
        nodes, tenants, seats = map(int, text.split("x"))
        return cls(nodes=nodes, tenants=tenants, seats_a_tenant=seats)


@dataclass
class Table:
    """What was measured: by row, one value for each size."""

    rows: dict[str, list[float]] = field(default_factory=dict)

    def add(self, row: str, value: float) -> None:
        self.rows.setdefault(row, []).append(float(value))
        print(f"  {row}: {value:.1f}", flush=True)

    def lines(self, sizes: Sequence[Size]) -> Iterator[str]:
        yield "| " + " | ".join(["", *map(str, sizes), "ratio"]) + " |"
        yield "|---" * (len(sizes) + 2) + "|"
        for row, values in self.rows.items():
            cells = [f"{value:.0f}" if value >= 100 or value.is_integer() else f"{value:.2g}" for value in values]
            yield "| " + " | ".join([row, *cells, f"{values[-1] / values[0]:.1f}"]) + " |"


def main() -> None:
    compare("python -m tests.benchmarks.scale", str(__doc__), measure)


def compare(program: str, about: str, measure: Callable[[Size, Path, Table], None]) -> None:
    """Measures one size after the other, and prints the table."""
    parser = argparse.ArgumentParser(prog=program, description=about)
    what = "NODESxTENANTSxSEATS of each tenant"
    usual = [Size(20, 10, 10), Size(200, 100, 10)]
    parser.add_argument("--sizes", nargs="+", type=Size.read, default=usual, metavar="SIZE", help=what)
    sizes = parser.parse_args().sizes
    table = Table()
    for size in sizes:
        print(size, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            measure(size, Path(folder), table)
    print("\n".join(table.lines(sizes)))


def measure(size: Size, folder: Path, table: Table) -> None:
    """Every row of the table for one size."""
    with cluster.running(folder / "cluster", extent=Extent.REAL_NODE) as running:
        add_nodes(running, [f"gpu-{number}" for number in range(size.nodes)])
        rollout = Rollout(running, workspace(folder))
        rollout.workspace.change(lambda config: enlarge(config, size))
        rollout.init()
        measure_rollout(rollout, size, table)
        measure_container(rollout, table)
        suspend_agents(rollout)
        measure_passes(rollout, folder, size, table)


def measure_rollout(rollout: Rollout, size: Size, table: Table) -> None:
    """From nothing, with all pods, unchanged, and with one budget changed."""
    up("up from nothing", rollout, table)
    assert advertised(rollout.cluster) == size.nodes + 1
    each(range(size.tenants), lambda tenant: create_pods(rollout, f"tenant-{tenant}", size.pods_a_tenant))
    until(lambda: not waiting(rollout.cluster), PATIENCE_SECONDS, "all pods run")
    assert set(up("second up", rollout, table)) == {"unchanged"}
    rollout.workspace.change(lambda config: config["residents"][seat(0, 0)].update(gpumem_mib=SEAT_MIB + 1))
    up("up with one budget changed", rollout, table)


def measure_container(rollout: Rollout, table: Table) -> None:
    """A whole run of reconcile by its CronJob, and the extenders, in their containers."""
    until(lambda: not is_active(rollout, names.RECONCILE), PATIENCE_SECONDS, "the run before ends")
    audit = Audit.of(rollout.cluster)
    until(lambda: is_active(rollout, names.RECONCILE), PATIENCE_SECONDS, "a run starts")
    peak_mib = 0.0
    while is_active(rollout, names.RECONCILE):
        peak_mib = max(peak_mib, peak_of(rollout, names.RECONCILE, AGENTS[names.RECONCILE]))
        time.sleep(1)
    requests = audit.requests(Account(SYSTEM, names.RECONCILE).user)
    show(requests)
    table.add("reconcile's run in its container: requests", requests.total())
    table.add("reconcile's run in its container: peak MiB", peak_mib)
    table.add("the extender in its container: peak MiB", peak_of(rollout, names.SCHEDULER, "extender"))


def peak_of(rollout: Rollout, name: str, program: str) -> float:
    """MiB, of the pods' processes that run now."""
    found = rollout.items(f"{pods(SYSTEM)}?labelSelector={names.LABEL_NAME}%3D{name}")
    return max((peak for pod in found for peak in metered.peaks_mib(pod["metadata"]["uid"], program)), default=0.0)


def measure_passes(rollout: Rollout, folder: Path, size: Size, table: Table) -> None:
    """Passes of reconcile, as a process under its own account."""
    running = rollout.cluster
    given = {**environment(rollout, names.RECONCILE), "POD_NAME": "bench", "RUN_SECONDS": "0"}

    def run() -> Run:
        return metered.run(running, folder, AGENTS[names.RECONCILE], Account(SYSTEM, names.RECONCILE), given)

    report("reconcile, nothing to do", run(), table)
    each(gpu_nodes(running), lambda node: lose_keys(running, node))
    report("reconcile, every node lost its keys", run(), table)
    assert advertised(running) == size.nodes + 1


def enlarge(config: dict[str, Any], size: Size) -> None:
    """Prod with so many more tenants, each with its residents, on so many more nodes."""
    config["pools"]["t4"]["nodes"] += size.nodes
    config["pools"]["t4"]["floor_mib"] = FLOOR_MIB
    for tenant in range(size.tenants):
        name = f"tenant-{tenant}"
        config["tenants"][name] = {}
        for number in range(size.seats_a_tenant):
            budget = {"tenant": name, "pool": "t4", "gpumem_mib": SEAT_MIB, "replicas": REPLICAS}
            config["residents"][seat(tenant, number)] = budget


def seat(tenant: int, number: int) -> str:
    return f"tenant-{tenant}-{number}"


def add_nodes(running: Cluster, found: Sequence[str]) -> None:
    """Each with a T4, which its exporter would have published, had it an NVML to ask."""
    running.add_nodes([gpu_node(name) for name in found])
    each(found, lambda name: running.api.create(SLICES, devices(name)))


def gpu_node(name: str, **resources: str) -> Mapping[str, Any]:
    labels = simulated.gpu_labels(sharing="time-slicing", replicas=100)
    return simulated.node(name, labels=labels, resources={"nvidia.com/gpu": "100", **resources})


def devices(node: str) -> Mapping[str, Any]:
    return simulated.devices(node, prod.cluster()["resource_domain"])


def up(title: str, rollout: Rollout, table: Table) -> dict[str, int]:
    """What the engine says it did. Its state is written at the end alone: a file of it, whole, for each step takes most
    of the time at 200 tenants."""
    audit, start = Audit.of(rollout.cluster), time.monotonic()
    done = changes(rollout.up())
    table.add(f"{title}: seconds", time.monotonic() - start)
    requests = audit.requests(ENGINE)
    show(requests)
    table.add(f"{title}: requests", requests.total())
    return done


def report(title: str, run: Run, table: Table) -> None:
    show(run.requests)
    table.add(f"{title}: requests", run.requests.total())
    table.add(f"{title}: KiB received", run.received_bytes / 1024)
    table.add(f"{title}: seconds", run.seconds)
    table.add(f"{title}: CPU seconds", run.cpu_seconds)
    table.add(f"{title}: peak MiB", run.peak_mib)


def show(requests: Counter[str]) -> None:
    print("    " + ", ".join(f"{count} {what}" for what, count in requests.most_common(12)), flush=True)


def create_pods(rollout: Rollout, tenant: str, count: int) -> None:
    for number in range(count):
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"seat-{number}"},
            "spec": {"containers": [container({GPUMEM: str(SEAT_MIB)})]},
        }
        refusal = rollout.create(pods(tenant), manifest).refusal
        assert refusal is None, refusal


def waiting(running: Cluster) -> bool:
    """Whether a pod of a tenant does not run yet."""
    path = "/api/v1/pods?limit=1&fieldSelector=status.phase%3DPending"
    return bool((running.api.get(path) or {"items": []})["items"])


def suspend_agents(rollout: Rollout) -> None:
    """So that only the measured runs ask in the agents' names. Returns when no Job of theirs is active."""
    for agent in AGENTS:
        rollout.cluster.api.patch(cron_job(agent), {"spec": {"suspend": True}})
    until(lambda: not any(is_active(rollout, agent) for agent in AGENTS), PATIENCE_SECONDS, "the agents' runs end")


def is_active(rollout: Rollout, agent: str) -> bool:
    return bool(rollout.get(cron_job(agent))["status"].get("active"))


def cron_job(agent: str) -> str:
    return f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs/{agent}"


def environment(rollout: Rollout, agent: str) -> dict[str, str]:
    """What the agent's manifest gives it, but for what only its pod knows."""
    (main,) = rollout.get(cron_job(agent))["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return metered.variables(main)


def gpu_nodes(running: Cluster) -> list[Mapping[str, Any]]:
    selector = "nvidia.com%2Fgpu.sharing-strategy%3Dtime-slicing"
    return list((running.api.get(f"/api/v1/nodes?labelSelector={selector}") or {"items": []})["items"])


def advertised(running: Cluster) -> int:
    """How many nodes offer what the pool gives."""
    return sum(node["status"]["allocatable"].get(GPUMEM) == "14k" for node in gpu_nodes(running))


def lose_keys(running: Cluster, node: Mapping[str, Any]) -> None:
    gone = {GPUMEM: None, GPU_COUNT: None}
    path = f"/api/v1/nodes/{node['metadata']['name']}/status"
    running.api.patch(path, {"status": {"capacity": gone, "allocatable": gone}})


def each(subjects: Iterable[Any], act: Callable[[Any], object]) -> None:
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(act, subjects))


if __name__ == "__main__":
    main()
