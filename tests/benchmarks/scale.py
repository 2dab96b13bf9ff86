"""Prod with many tenants and nodes on a local cluster, compared with a tenth of them: `make bench-scale`.

Each size has a new cluster, with GPU nodes and pods that kwok plays and the real node on which the agents run. Requests
are counted from the API server's audit log, so these do not depend on the machine; quote them and the ratios.
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agents.kube.slices import SLICES
from tests.support.e2e.rollout import GPUMEM, Rollout, changes, container, pods
from toolchain.cluster import cluster, prod, simulated
from toolchain.cluster.api import USER_AGENT, until
from toolchain.cluster.cluster import Cluster
from toolchain.cluster.control_plane import AUDIT
from toolchain.cluster.extent import Extent
from toolchain.workspace import workspace

REPLICAS = 2
SEAT_MIB = 1300  # ten on a node of 14000
FLOOR_MIB = 1360  # what a device that is promised whole leaves free
WRITERS = 8
PATIENCE_SECONDS = 1800
ENGINE = "admin"


@dataclass(frozen=True)
class Size:
    """The nodes and tenants in addition to prod's. Each tenant has so many seats, of two replicas each."""

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
    """The measured values: for each row, one value a size."""

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


@dataclass(frozen=True)
class Audit:
    """The API server's log of requests from one moment on."""

    log: Path
    inode: int
    start: int

    @classmethod
    def of(cls, cluster: Cluster) -> "Audit":
        log = cluster.log(AUDIT)
        found = log.stat()
        return cls(log, found.st_ino, found.st_size)

    def requests(self, user: str) -> Counter[str]:
        """Counts a user's requests by verb and resource. Requests of this benchmark itself are left out."""
        asked: Counter[str] = Counter()
        for line in self._lines(f'"{user}"'.encode()):
            entry = json.loads(line)
            counted = entry["stage"] == ("ResponseStarted" if entry["verb"] == "watch" else "ResponseComplete")
            ours = entry.get("userAgent") == USER_AGENT
            if counted and not ours and entry["user"]["username"] == user:
                about = entry.get("objectRef") or {"resource": urlsplit(entry["requestURI"]).path}
                what = "/".join(about[part] for part in ("resource", "subresource") if part in about)
                asked[f"{entry['verb']} {what}"] += 1
        return asked

    def _lines(self, wanted: bytes) -> Iterator[bytes]:
        """Yields whole lines that hold `wanted`. A log that has grown large is renamed, and a new file continues it."""
        for log in sorted(self.log.parent.glob(f"{self.log.stem}*"), key=lambda log: log.stat().st_mtime):
            begun = log.stat().st_ino == self.inode
            if not begun and log != self.log:
                continue  # it ended before
            with log.open("rb") as lines:
                lines.seek(self.start if begun else 0)
                yield from (line for line in lines if wanted in line and line.endswith(b"\n"))


def main() -> None:
    """Measures one size after the other, and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scale", description=__doc__)
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


def measure_rollout(rollout: Rollout, size: Size, table: Table) -> None:
    """From nothing, with all pods, unchanged, and with one budget changed."""
    up("up from nothing", rollout, table)
    assert advertised(rollout.cluster) == size.nodes + 1
    each(range(size.tenants), lambda tenant: create_pods(rollout, f"tenant-{tenant}", size.pods_a_tenant))
    until(lambda: not waiting(rollout.cluster), PATIENCE_SECONDS, "all pods run")
    assert set(up("second up", rollout, table)) == {"unchanged"}
    rollout.workspace.change(lambda config: config["residents"][seat(0, 0)].update(gpumem_mib=SEAT_MIB + 1))
    up("up with one budget changed", rollout, table)


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
    """Rolls out, and returns what the engine did. Its state is written only at the end, since at 200 tenants writing it
    after each step takes most of the time."""
    audit, start = Audit.of(rollout.cluster), time.monotonic()
    done = changes(rollout.up())
    table.add(f"{title}: seconds", time.monotonic() - start)
    requests = audit.requests(ENGINE)
    print("    " + ", ".join(f"{count} {what}" for what, count in requests.most_common(12)), flush=True)
    table.add(f"{title}: requests", requests.total())
    return done


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
    """Returns True if a pod of a tenant does not run yet."""
    path = "/api/v1/pods?limit=1&fieldSelector=status.phase%3DPending"
    return bool((running.api.get(path) or {"items": []})["items"])


def gpu_nodes(running: Cluster) -> list[Mapping[str, Any]]:
    selector = "nvidia.com%2Fgpu.sharing-strategy%3Dtime-slicing"
    return list((running.api.get(f"/api/v1/nodes?labelSelector={selector}") or {"items": []})["items"])


def advertised(running: Cluster) -> int:
    """Counts the nodes that advertise the pool's capacity."""
    return sum(node["status"]["allocatable"].get(GPUMEM) == "14k" for node in gpu_nodes(running))


def each(subjects: Iterable[Any], act: Callable[[Any], object]) -> None:
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(act, subjects))


if __name__ == "__main__":
    main()
