from dataclasses import replace

import pytest
from pydantic import ValidationError

from agents.telemetry.reading import FRESH_SECONDS
from components.agents.exporter import Exporter, ExporterArgs, ExporterSpec
from components.base.manifest import Manifest
from components.base.system import ClusterSpec
from tenancy.ledger import ClaimedDevices, Enforce
from tests.support.engine import Graph, names
from tests.support.given import (
    CLUSTER,
    LEDGER,
    NODE_CODE,
    NODES,
    PROMETHEUS,
    SCRAPED,
    SYSTEM,
    T4,
    container,
    declared,
    environment,
    pod,
    rights,
)

A10 = replace(T4, name="a10", node_selector={"zone": "c"})


@pytest.fixture(scope="module")
def graph() -> Graph:
    ledger = replace(LEDGER, pools=(*LEDGER.pools, A10))
    spec = ExporterSpec(port=9555, interval_seconds=9)
    return declared(Exporter, "exporter", ExporterArgs(spec=spec, cluster=CLUSTER, code=NODE_CODE, ledger=ledger))


def test_it_is_a_daemon_set_under_its_identity_apart_from_the_other_agents(graph: Graph) -> None:
    assert names(graph.children(graph.one("Exporter"))) == {
        *(f"exporter-{what}" for what in ("identity", "daemon-set", "network-policy")),
    }
    assert graph.one("DaemonSet").inputs["metadata"]["namespace"] == NODES
    assert graph.depends_on(graph.one("DaemonSet"), graph.one("ServiceAccount"))


# A DaemonSet's pod is deleted when its node no longer matches; a node without the label does.
NOT_PAUSED = [
    {"key": f"nvidia.com/gpu.deploy.{part}", "operator": "NotIn", "values": list(paused)}
    for paused in [("paused-for-driver-upgrade", "paused-for-mig-change")]
    for part in ("client", "device-plugin")
]


def test_it_runs_on_the_nodes_of_every_pool_that_shares_memory_and_on_no_other(graph: Graph) -> None:
    affinity = pod(dict(graph.one("DaemonSet").inputs))["affinity"]["nodeAffinity"]
    assert affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {
            "matchExpressions": [
                {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["Tesla-T4"]},
                {"key": "zone", "operator": "In", "values": ["a"]},
                *NOT_PAUSED,
            ]
        },
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["c"]}, *NOT_PAUSED]},
    ]


@pytest.mark.parametrize(("cluster", "scrapers"), [(CLUSTER, []), (SCRAPED, [PROMETHEUS.peer])])
def test_who_acts_on_the_measurements_reads_them_and_prometheus_and_nobody_else(
    cluster: ClusterSpec, scrapers: list[Manifest]
) -> None:
    args = ExporterArgs(spec=ExporterSpec(port=9555), cluster=cluster, code=NODE_CODE, ledger=LEDGER)
    graph = declared(Exporter, "exporter", args)
    spec = graph.one("NetworkPolicy").inputs["spec"]
    labels = graph.one("DaemonSet").inputs["spec"]["template"]["metadata"]["labels"]
    assert spec["podSelector"]["matchLabels"].items() <= labels.items()
    (rule,) = spec["ingress"]
    ours, *others = rule["from"]
    assert others == scrapers
    assert ours["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": SYSTEM}}
    (readers,) = ours["podSelector"]["matchExpressions"]
    assert (readers["key"], readers["operator"]) == ("app.kubernetes.io/name", "In")
    assert set(readers["values"]) == {"gpu-vram-watchdog", "gpu-demand-gate", "gpu-tenancy-scheduler"}
    assert rule["ports"] == [{"protocol": "TCP", "port": 9555}]
    assert graph.depends_on(graph.one("DaemonSet"), graph.one("NetworkPolicy"))


def test_it_sees_every_device_and_takes_none(graph: Graph) -> None:
    workload = dict(graph.one("DaemonSet").inputs)
    given = environment(workload)
    assert (given["NVIDIA_VISIBLE_DEVICES"], given["NVIDIA_DRIVER_CAPABILITIES"]) == ("all", "utility")
    assert set(container(workload)["resources"]["limits"]) == {"memory"}
    assert pod(workload)["runtimeClassName"] == "nvidia"
    assert pod(workload)["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]


def test_it_sees_the_hosts_processes_without_being_privileged(graph: Graph) -> None:
    workload = dict(graph.one("DaemonSet").inputs)
    assert pod(workload)["hostPID"] is True
    assert not {"hostNetwork", "hostIPC"} & pod(workload).keys()
    assert "privileged" not in container(workload)["securityContext"]


def test_it_may_read_whose_the_processes_are_and_the_ledger_and_nothing_else(graph: Graph) -> None:
    """It sees the host's processes: whoever broke into it could change nothing through the API."""
    assert rights(graph) == {
        *(("*", resource, verb, ()) for resource in ("/pods", "/nodes") for verb in ("list", "watch")),
        *(
            (SYSTEM, "/configmaps", verb, ("gpu-tenancy-ledger", "gpu-vram-watchdog-journal"))
            for verb in ("list", "watch")
        ),
    }


@pytest.fixture(scope="module")
def publishing() -> Graph:
    args = ExporterArgs(spec=ExporterSpec(), cluster=CLUSTER, code=NODE_CODE, ledger=LEDGER, publish_devices=True)
    return declared(Exporter, "exporter", args)


def test_it_publishes_its_nodes_devices_where_it_is_asked_to(graph: Graph, publishing: Graph) -> None:
    given = [environment(dict(each.one("DaemonSet").inputs))["PUBLISH_DEVICES"] for each in (graph, publishing)]
    assert given == ["false", "true"]
    assert rights(publishing) - rights(graph) == {
        ("*", "resource.k8s.io/resourceslices", verb, ()) for verb in ("list", "watch", "create", "patch")
    }


def test_what_it_may_publish_is_limited_before_it_may(publishing: Graph) -> None:
    guard = publishing.one("ValidatingAdmissionPolicyBinding")
    assert guard.inputs["spec"] == {"policyName": "gpu-tenancy-device-slices", "validationActions": ["Deny"]}
    assert publishing.depends_on(guard, publishing.one("ValidatingAdmissionPolicy"))
    assert publishing.depends_on(publishing.one("DaemonSet"), guard)


def test_its_samples_are_never_older_than_its_readers_believe() -> None:
    assert ExporterSpec(interval_seconds=15).interval_seconds * 2 <= FRESH_SECONDS
    with pytest.raises(ValidationError, match="less than or equal to 15"):
        ExporterSpec(interval_seconds=16)


def test_its_port_is_the_operators_and_answers_the_probes(graph: Graph) -> None:
    workload = dict(graph.one("DaemonSet").inputs)
    assert container(workload)["ports"] == [{"name": "metrics", "containerPort": 9555}]
    for probe in ("livenessProbe", "readinessProbe"):
        assert container(workload)[probe]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert (environment(workload)["PORT"], environment(workload)["INTERVAL_SECONDS"]) == ("9555", "9")


def test_its_selector_chooses_its_pods(graph: Graph) -> None:
    spec = graph.one("DaemonSet").inputs["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_its_output_is_its_daemon_set(graph: Graph) -> None:
    assert graph.outputs_of(graph.one("Exporter")) == {"daemonSet": "gpu-memory-exporter"}


def test_it_sees_the_hosts_control_groups_only_where_a_pools_driver_is_to_hold_containers(graph: Graph) -> None:
    """A container's own view is of itself alone, and NVML opens the directory that it is asked about."""
    pools = tuple(replace(pool, enforce=Enforce.DRIVER) for pool in LEDGER.pools)
    args = ExporterArgs(spec=ExporterSpec(), cluster=CLUSTER, code=NODE_CODE, ledger=replace(LEDGER, pools=pools))
    reading = dict(declared(Exporter, "exporter", args).one("DaemonSet").inputs)
    (volume,) = [each for each in pod(reading)["volumes"] if "hostPath" in each]
    (mount,) = [each for each in container(reading)["volumeMounts"] if each["name"] == volume["name"]]
    assert volume["hostPath"] == {"path": "/sys/fs/cgroup", "type": "Directory"}
    assert (mount["mountPath"], mount["readOnly"]) == ("/sys/fs/cgroup", True)
    assert not [each for each in pod(dict(graph.one("DaemonSet").inputs))["volumes"] if "hostPath" in each]


def test_where_nvidias_devices_are_claimed_it_sees_them_by_a_claim_that_takes_nothing() -> None:
    """NVIDIA's GPUCluster brings no runtime class."""
    ledger = replace(LEDGER, claimed=ClaimedDevices(driver="gpu.nvidia.com", shared=True))
    args = ExporterArgs(spec=ExporterSpec(), cluster=CLUSTER, code=NODE_CODE, ledger=ledger)
    graph = declared(Exporter, "exporter", args)
    manifest, template = dict(graph.one("DaemonSet").inputs), graph.one("ResourceClaimTemplate")
    assert "runtimeClassName" not in pod(manifest)
    assert pod(manifest)["resourceClaims"] == [
        {"name": "devices", "resourceClaimTemplateName": "gpu-memory-exporter-devices"}
    ]
    assert container(manifest)["resources"]["claims"] == [{"name": "devices"}]
    assert template.inputs["metadata"]["namespace"] == NODES
    (request,) = template.inputs["spec"]["spec"]["devices"]["requests"]
    assert (request["exactly"]["adminAccess"], request["exactly"]["allocationMode"]) == (True, "All")
    assert graph.depends_on(graph.one("DaemonSet"), template)
