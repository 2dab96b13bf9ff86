"""Tests that `init` reads measured peaks from a real Prometheus, from our exporter's series or from DCGM's."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumem.init import command
from tests.support.given_clusters import (
    GPU,
    STEADY,
    Cluster,
    Object,
    labelled,
    of_deployment,
    record_0000,
)
from tests.support.remembering import prometheus

MIB = 2**20
NOW = round(time.time()) // 60 * 60
MINUTES, SPIKE = 60, 30
OURS, DCGM = "gpu_pod_memory_used_bytes", "DCGM_FI_DEV_FB_USED"
ALONE_MIB = 9000


def cluster() -> Cluster:
    alone = of_deployment("llm", "chat", on="k8s-node5", limits={GPU: "1"})
    found = record_0000(*alone)
    found.nodes.append(labelled("k8s-node5", "NVIDIA-L4", 23034))
    return found


def series(pod: Object, exporter: str) -> str:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    renamed = f'exported_namespace="{namespace}",exported_pod="{name}"'
    return f'{OURS}{{namespace="nvidia",pod="{exporter}",{renamed},container="main",uuid="GPU-0"}}'


def dcgm(pod: Object) -> str:
    metadata = pod["metadata"]
    return f'{DCGM}{{namespace="{metadata["namespace"]}",pod="{metadata["name"]}",gpu="0",UUID="GPU-1"}}'


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    lines: dict[str, list[str]] = {OURS: [], DCGM: []}
    pods = {
        pod["metadata"]["ownerReferences"][0]["name"]: pod
        for pod in cluster().pods
        if pod["metadata"]["ownerReferences"]
    }
    for minute in range(MINUTES):
        moment = NOW - (MINUTES - minute) * 60
        for name, mib in STEADY.items():
            used = 10700 if name == "immich-ml" and minute == SPIKE else mib
            for exporter in ("old", "new")[int(minute > SPIKE) : 1 + int(minute >= SPIKE)]:
                lines[OURS].append(f"{series(pods[f'{name}-6c9f8d7b54'], exporter)} {used * MIB} {moment}")
        shared = pods["android-emulator-6c9f8d7b54"]
        lines[DCGM].append(f"{dcgm(shared)} 14000 {moment}")
        lines[DCGM].append(f"{dcgm(pods['llm-6c9f8d7b54'])} {ALONE_MIB if minute == SPIKE else 4000} {moment}")
    text = [
        line
        for name, found in lines.items()
        for line in (f"# TYPE {name} gauge", *sorted(found, key=lambda line: (line.split()[0], line.split()[2])))
    ]
    with prometheus(tmp_path_factory.mktemp("prometheus"), text) as found:
        yield found


def test_budgets_are_the_measured_peaks(address: str, tmp_path: Path) -> None:
    report = command.report(cluster().api(), "mine", tmp_path, prometheus=address, days=2, overwrite=False)
    seats = {seat.name: seat.gpumem_mib for seat in report.found.proposal.seats}
    assert {name: seat.value for name, seat in seats.items() if name != "android-emulator"} == {
        "immich-ml": 10700,
        "llama-swap": 4500,
        "frigate": 2000,
        "immich-server": 1300,
        "portal-stt": 1600,
        "llm": ALONE_MIB,
    }
    assert seats["immich-ml"].source == f"measured peak 10700 of 2 days, {OURS}"
    assert seats["llm"].source == f"measured peak {ALONE_MIB} of 2 days, {DCGM}"
    # DCGM counts the use of all pods on the shared device.
    assert seats["android-emulator"].is_assumed
