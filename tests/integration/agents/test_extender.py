"""The extender as a process, as it is shipped."""

import json
from pathlib import Path

import pytest

from tests.support.api_server import ServedOverTls
from tests.support.exporters import add_exporter
from tests.support.extenders import PATIENCE_SECONDS, Extender, eventually, publish, running
from tests.support.fake_cluster import SYSTEM, T4
from tests.support.shipped_exporter import shipped_exporter
from toolchain.cluster.fake_nvml import FakeNvml

MIB = 2**20


@pytest.mark.parametrize(("scoring", "best"), [("best_fit", "tight"), ("fragmentation", "even")])
def test_it_places_by_the_rule_of_its_environment(
    served: ServedOverTls, zipapp: Path, tmp_path: Path, scoring: str, best: str
) -> None:
    """While pods of 4000 MiB are usual, 2000 left over on a device are worth nothing."""
    served.cluster.add_ledger(T4)
    for node, mib in (("tight", 6000), ("even", 8000), ("other", 8000)):
        served.cluster.add_node(node)
        publish(served.cluster, mib + T4.reserve_mib, node=node)
    served.cluster.add_pod("usual", "other", "4000")
    with running(served, zipapp, tmp_path, SCORING=scoring) as extender:
        assert extender.filter(4000, nodes=("even", "tight"))["NodeNames"] == [best]
        inspected = json.loads(extender.get("/inspect")[1])["nodes"]
    (promised,) = (n["name"] for n in inspected for d in n["devs"] for p in d["pods"] if p["standing"] == "reserved")
    assert promised == best


def refusal(extender: Extender, mib: int) -> str | None:
    """Why the node does not take the pod; None where it does. It is always the same pod, so that its promise goes."""
    answer = extender.filter(mib)
    assert not answer["FailedAndUnresolvableNodes"]
    reasons: dict[str, str] = answer["FailedNodes"]
    return reasons.get("k8s-node1")


def test_free_as_measured_and_less_the_floor_is_what_a_pod_can_have(
    served: ServedOverTls, zipapp: Path, node_zipapp: Path, nvml: FakeNvml, tmp_path: Path
) -> None:
    """The exporter reads the card and publishes it, the extender reads the exporter, the scheduler asks the extender.
    Nobody's pod is on the card, but something uses it."""

    def use(mib: int) -> None:
        nvml.show(f"device GPU-11 {15360 * MIB} {(15360 - mib) * MIB} {mib * MIB}")

    use(6000)
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    add_exporter(served, ip="127.0.0.1")
    with shipped_exporter(served, node_zipapp, nvml) as exporter:
        eventually(lambda: any("resourceslices" in path for path in served.cluster.objects))
        environment = {"EXPORTER_NAMESPACE": "nodes", "EXPORTER_PORT": str(exporter.port)}
        with running(served, zipapp, tmp_path, **environment) as extender:
            for used_mib in (6000, 12000):
                use(used_mib)
                free_mib = 15360 - used_mib
                eventually(lambda free_mib=free_mib: f'"measuredFreeGPU": {free_mib}' in extender.get("/inspect")[1])
                largest_mib = free_mib - T4.floor_mib
                why = (
                    f"its largest GPU has {largest_mib} MiB free, not {largest_mib + 1}, as measured and less the floor"
                )
                assert refusal(extender, largest_mib + 1) == why
                assert refusal(extender, largest_mib) is None


def test_where_one_of_its_threads_ends_the_process_does(served: ServedOverTls, zipapp: Path, tmp_path: Path) -> None:
    """It would refuse every pod for ever, and look well: here the Lease is answered by what is no list."""
    served.cluster.add_ledger(T4)
    served.cluster.objects[f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"] = {"kind": "LeaseList"}
    with running(served, zipapp, tmp_path, LEASE=f"{SYSTEM}/scheduler") as extender:
        assert extender.process.wait(PATIENCE_SECONDS) == 1
