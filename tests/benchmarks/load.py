"""What all agents ask of the API server while nothing happens, and what they take: `python -m tests.benchmarks.load`.

An API server has the nodes, pods and devices of the stacks of tests/benchmarks/scale.py, and nobody plays them. The
agents are processes under their own accounts; of 20 exporters the informers are threads, and their requests are taken
as often as there are nodes. Requests are counted from the API server's audit log. kube-scheduler's own are not in it.
The table goes into docs/benchmarks.md.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from agents.kube.informer import WATCH_SECONDS
from agents.telemetry.resourceslice import SLICES
from stacks import platform, settings
from tenancy import names
from tests.benchmarks import metered, played
from tests.benchmarks.metered import Account, Audit, Run
from tests.benchmarks.scale import (
    AGENTS,
    PATIENCE_SECONDS,
    SEAT_MIB,
    Size,
    Table,
    compare,
    devices,
    each,
    enlarge,
    gpu_node,
    report,
    show,
)
from tests.e2e.rollout import GPU_COUNT, GPUMEM, SYSTEM, pods
from tests.support.engine import build
from tests.support.prod import raw
from toolchain.cluster import cluster, simulated
from toolchain.cluster.cluster import Cluster
from toolchain.cluster.extent import Extent
from toolchain.cluster.process import free_ports

EXTENDERS, EXPORTERS = 2, 20
REST_SECONDS, TRIES = 30, 3
ALL_EXPORTERS = "all exporters"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
WHOLE = {"Namespace": "/api/v1/namespaces", "ClusterRole": f"{RBAC}/clusterroles"}
WHOLE["ClusterRoleBinding"] = f"{RBAC}/clusterrolebindings"
NAMESPACED = {"ServiceAccount": "/api/v1/{}/serviceaccounts", "Role": f"{RBAC}/{{}}/roles"}
NAMESPACED |= {"RoleBinding": f"{RBAC}/{{}}/rolebindings", "ConfigMap": "/api/v1/{}/configmaps"}

Manifest = Mapping[str, Any]


def main() -> None:
    compare("python -m tests.benchmarks.load", str(__doc__), measure)


def measure(size: Size, folder: Path, table: Table) -> None:
    """Every row of the table for one size."""
    program = declared(size)
    with cluster.running(folder / "cluster", extent=Extent.API_SERVER) as running:
        measured, _ = simulated.SHARED
        nodes = [measured, *(f"gpu-{number}" for number in range(size.nodes))]
        create(running, program, size, nodes)

        def run(agent: str, **environ: str) -> Run:
            given = {**variables(program, agent), "POD_NAME": "bench", **environ}
            return metered.run(running, folder, AGENTS[agent], Account(SYSTEM, agent), given)

        with (
            played.watching(running, folder, nodes[:EXPORTERS], PATIENCE_SECONDS) as exporters,
            played.answering(running, exporters.informers[0].last) as port,
            extenders(running, folder, program, port) as processes,
        ):
            given = {"EXPORTER_PORT": str(port)}
            seen = run(names.WATCHDOG, RUN_SECONDS="0", **given)
            report("watchdog, one pass", seen, table)
            assert seen.lines[-1]["devices"] == len(nodes), seen.lines[-1]
            run(names.RECONCILE, RUN_SECONDS="0")  # writes down what it sees for the first time
            with ThreadPoolExecutor() as together:
                runs = list(together.map(lambda agent: run(agent, **given), AGENTS))
            for name, ran in zip(AGENTS.values(), runs, strict=True):
                report(f"{name}, its run of a minute", ran, table)
            asked = float(sum(ran.requests.total() for ran in runs))
            time.sleep(REST_SECONDS)
            minute = undisturbed(running, exporters)
            minute[ALL_EXPORTERS] *= len(nodes) / len(exporters.informers)
            for title, requests in minute.items():
                table.add(f"{title}: requests a minute", requests)
                asked += requests
            table.add("an extender: peak MiB", max(metered.peak_mib(process) for process in processes))
    table.add("all agents: requests a second", asked / 60)


def undisturbed(running: Cluster, exporters: played.Exporters) -> dict[str, float]:
    """Requests a minute, while each watch of an exporter is renewed once. Raises SystemExit where the machine is too
    busy for that: an API server that does not answer loses watches."""
    accounts = {ALL_EXPORTERS: played.ACCOUNT, "all extenders": Account(SYSTEM, names.SCHEDULER)}
    for _ in range(TRIES):
        said, audit = exporters.said.tell(), Audit.of(running)
        time.sleep(WATCH_SECONDS)
        if exporters.said.tell() == said:
            found = {title: audit.requests(account.user) for title, account in accounts.items()}
            for requests in found.values():
                show(requests)
            return {title: requests.total() * 60 / WATCH_SECONDS for title, requests in found.items()}
        print(f"again: {exporters.said.getvalue()[said:].splitlines()[0]}", flush=True)
    raise SystemExit("the API server is too busy")


def declared(size: Size) -> list[Manifest]:
    """The objects of prod's program, enlarged."""
    config = raw()
    enlarge(config, size)
    return list(build(lambda: platform.build(settings.parse(config))).objects())


def create(running: Cluster, program: list[Manifest], size: Size, nodes: Sequence[str]) -> None:
    """What the agents read: their accounts and rights, ledger and journals, nodes, devices, pods."""
    for kind, path in (*WHOLE.items(), *NAMESPACED.items()):
        for manifest in program:
            metadata = manifest["metadata"]
            home = f"namespaces/{metadata.get('namespace')}"
            if manifest["kind"] == kind and home != "namespaces/kube-system" and "binaryData" not in manifest:
                running.api.create(path.format(home), manifest)
    capacity = {GPUMEM: "14k", GPU_COUNT: "1"}
    for node in simulated.nodes():
        if node["metadata"]["name"] in simulated.SHARED:
            node["status"] = {part: {**found, **capacity} for part, found in node["status"].items()}
        running.api.create("/api/v1/nodes", node)
    each(nodes[1:], lambda node: running.api.create("/api/v1/nodes", gpu_node(node, **capacity)))
    each(nodes, lambda node: running.api.create(SLICES, devices(node)))
    each(nodes, lambda node: running.api.create(pods(played.ACCOUNT.namespace), exporter(node)))
    each(seats(size), lambda seat: running.api.create(pods(seat["metadata"]["namespace"]), seat))


def exporter(node: str) -> Manifest:
    labels = {names.LABEL_NAME: names.EXPORTER}
    return pod({"name": f"{names.EXPORTER}-{node}", "labels": labels}, node, {"cpu": "20m"})


def seats(size: Size) -> Iterator[Manifest]:
    """One node after the other."""
    for number in range(size.pods):
        tenant, seat = divmod(number, size.pods_a_tenant)
        metadata = {"name": f"seat-{seat}", "namespace": f"tenant-{tenant}"}
        yield pod(metadata, f"gpu-{number % size.nodes}", {GPUMEM: str(SEAT_MIB)})


def pod(metadata: Manifest, node: str, limits: Mapping[str, str]) -> Manifest:
    """About 6 KiB as JSON, as pods with variables and probes are."""
    main = {
        "name": "main",
        "image": "busybox:1.37.0",
        "env": [{"name": f"SETTING_{number}", "value": "x" * 60} for number in range(40)],
        "resources": {"limits": dict(limits)},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node, "containers": [main]}}


@contextmanager
def extenders(running: Cluster, folder: Path, program: list[Manifest], port: int) -> Iterator[list[Path]]:
    """As many as the Deployment has, without their kube-schedulers; yields their folders in /proc."""
    account, found = Account(SYSTEM, names.SCHEDULER), template(program, "Deployment", names.SCHEDULER)
    declared = metered.variables(found["spec"]["containers"][0])
    with ExitStack() as stack:
        processes = []
        for number in range(EXTENDERS):
            certificates = folder / f"certificates-{number}"
            certificates.mkdir()
            verbs, questions = free_ports(2)
            given = {"CERTIFICATES": str(certificates), "VERBS_PORT": str(verbs), "HTTP_PORT": str(questions)}
            env = {**declared, **given, "POD_NAME": f"bench-{number}", "EXPORTER_PORT": str(port)}
            metered.run(running, folder, "certify", account, env)
            processes.append(stack.enter_context(metered.running(running, folder, "extender", account, env)))
        yield [Path("/proc", str(process.pid)) for process in processes]


def variables(program: list[Manifest], agent: str) -> dict[str, str]:
    (main,) = template(program, "CronJob", agent)["spec"]["containers"]
    return metered.variables(main)


def template(program: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = (each for each in program if (each["kind"], each["metadata"]["name"]) == (kind, name))
    spec = found["spec"]["jobTemplate"]["spec"] if kind == "CronJob" else found["spec"]
    pod_template: Manifest = spec["template"]
    return pod_template


if __name__ == "__main__":
    main()
