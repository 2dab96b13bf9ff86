from dataclasses import replace

import pytest

from components.agents.exporter import Exporter, ExporterArgs
from components.base.manifest import Manifest
from components.base.system import ClusterSpec
from tests.support.engine import Graph
from tests.support.given import (
    CLUSTER,
    LEDGER,
    NODE_CODE,
    PROMETHEUS,
    SCRAPED,
    SYSTEM,
    declared,
)

ARGS = ExporterArgs(cluster=CLUSTER, code=NODE_CODE, ledger=LEDGER)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return declared(Exporter, "exporter", ARGS)


@pytest.mark.parametrize(("cluster", "scrapers"), [(CLUSTER, []), (SCRAPED, [PROMETHEUS.peer])])
def test_who_acts_on_the_measurements_reads_them_and_prometheus_and_nobody_else(
    cluster: ClusterSpec, scrapers: list[Manifest]
) -> None:
    graph = declared(Exporter, "exporter", replace(ARGS, cluster=cluster))
    spec = graph.one("NetworkPolicy").inputs["spec"]
    labels = graph.one("DaemonSet").inputs["spec"]["template"]["metadata"]["labels"]
    assert spec["podSelector"]["matchLabels"].items() <= labels.items()
    (rule,) = spec["ingress"]
    ours, *others = rule["from"]
    assert others == scrapers
    assert ours["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": SYSTEM}}
    (readers,) = ours["podSelector"]["matchExpressions"]
    assert (readers["key"], readers["operator"]) == ("app.kubernetes.io/name", "In")
    expected = {"gpu-vram-watchdog", "gpu-demand-gate", "gpu-tenancy-scheduler", "gpu-tenancy-board"}
    assert set(readers["values"]) == expected
    assert rule["ports"] == [{"protocol": "TCP", "port": 9401}]
    assert graph.depends_on(graph.one("DaemonSet"), graph.one("NetworkPolicy"))


@pytest.fixture(scope="module")
def publishing() -> Graph:
    return declared(Exporter, "exporter", replace(ARGS, publish_devices=True))


def test_what_it_may_publish_is_limited_before_it_may(publishing: Graph) -> None:
    guard = publishing.one("ValidatingAdmissionPolicyBinding")
    assert guard.inputs["spec"] == {"policyName": "gpu-tenancy-device-slices", "validationActions": ["Deny"]}
    assert publishing.depends_on(guard, publishing.one("ValidatingAdmissionPolicy"))
    assert publishing.depends_on(publishing.one("DaemonSet"), guard)
