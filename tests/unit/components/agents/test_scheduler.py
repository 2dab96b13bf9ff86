import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agents.extender import certs, protocol
from agents.extender import main as extender
from agents.extender.cache import measured
from agents.extender.cache.cache import Cache
from agents.runtime import settings as agent_environment
from components.agents.exporter import ExporterSpec
from components.agents.scheduler import Scheduler, SchedulerArgs, SchedulerSpec, by_device
from tenancy.devices.allocate import Ask, Scoring
from tenancy.ledger import PlacementMode
from tenancy.names import EXTENDER_TIMEOUT_SECONDS
from tests.support.devices import inventory
from tests.support.engine import Graph, names
from tests.support.given import CLUSTER, CODE, DOMAIN, LEDGER, PROMETHEUS, SCRAPED, SYSTEM, T4, declared, pod, rights

ARGS = SchedulerArgs(
    spec=SchedulerSpec(placement=PlacementMode.EXTENDER, port=9555),
    cluster=CLUSTER,
    code=CODE,
    ledger=LEDGER,
    exporter=ExporterSpec(port=9401),
)


def changed(**values: Any) -> SchedulerArgs:
    return replace(ARGS, spec=ARGS.spec.model_copy(update=values))


@pytest.fixture(scope="module")
def graph() -> Graph:
    return declared(Scheduler, "scheduler", ARGS)


def deployment(graph: Graph) -> dict[str, Any]:
    return dict(graph.one("Deployment").inputs)


def containers(graph: Graph) -> dict[str, dict[str, Any]]:
    spec = pod(deployment(graph))
    return {each["name"]: each for each in (*spec["initContainers"], *spec["containers"])}


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {e["name"]: e["value"] for e in container["env"] if "value" in e}


def configuration(graph: Graph) -> dict[str, Any]:
    (content,) = graph.one("ConfigMap").inputs["data"].values()
    return dict(json.loads(content))


def test_it_is_a_deployment_under_its_identity_with_all_that_it_needs(graph: Graph) -> None:
    assert names(graph.children(graph.one("Scheduler"))) == {
        *(f"scheduler-{what}" for what in ("identity", "config", "retry-claim", "deployment")),
        *(f"scheduler-{what}" for what in ("network-policy", "disruption-budget")),
    }
    for needed in ("ServiceAccount", "ConfigMap", "ResourceClaim"):
        assert graph.depends_on(graph.one("Deployment"), graph.one(needed))
    assert graph.outputs_of(graph.one("Scheduler")) == {"schedulerName": "gpu-tenancy"}


def test_the_extender_runs_beside_the_scheduler_that_calls_it(graph: Graph) -> None:
    """Whoever leads of the one leads of the other, and nothing between them can be down alone."""
    assert set(containers(graph)) == {"certify", "extender", "kube-scheduler"}
    (extender,) = configuration(graph)["extenders"]
    given = environment(containers(graph)["extender"])
    assert extender["urlPrefix"] == f"https://127.0.0.1:{given['VERBS_PORT']}"
    assert {f"{verb}Verb" for verb in ("filter", "preempt", "bind")} <= extender.keys()


def test_the_certificates_never_leave_the_pod(graph: Graph) -> None:
    (volume,) = (v for v in pod(deployment(graph))["volumes"] if v["name"] == "certificates")
    assert volume["emptyDir"]["medium"] == "Memory"
    folder = environment(containers(graph)["extender"])["CERTIFICATES"]
    writable = {}
    for name, each in containers(graph).items():
        (mount,) = (m for m in each["volumeMounts"] if m["name"] == "certificates")
        assert mount["mountPath"] == folder
        writable[name] = not mount.get("readOnly", False)
    assert writable == {"certify": True, "extender": False, "kube-scheduler": False}
    (extender,) = configuration(graph)["extenders"]
    assert extender["enableHTTPS"] is True
    assert all(path.startswith(f"{folder}/") for path in extender["tlsConfig"].values())


def test_a_pod_with_gpumem_waits_while_the_extender_is_away_and_the_nodes_sum_is_checked_too(graph: Graph) -> None:
    (extender,) = configuration(graph)["extenders"]
    assert extender["ignorable"] is False
    assert extender["managedResources"] == [{"name": f"{DOMAIN}/gpumem", "ignoredByScheduler": False}]


def test_of_two_nodes_with_room_the_device_decides(graph: Graph) -> None:
    """kube-scheduler asks about every node, and takes the one that the filter leaves. Its own plugins gave up to 1200
    points to a node where a prioritize verb could give 120."""
    cache = Cache()
    for name, mib in (("A", 5001), ("B", 5000), ("C", 80000)):
        cache.update_node(inventory(name, mib))
    assert cache.fit("pod", Ask(5000), ["A", "B", "C"], 0.0).nodes == ("B",)
    assert configuration(graph)["percentageOfNodesToScore"] == 100


def test_the_scheduler_waits_for_as_long_as_the_extender_takes_at_most(graph: Graph) -> None:
    (extender,) = configuration(graph)["extenders"]
    assert extender["httpTimeout"] == f"{EXTENDER_TIMEOUT_SECONDS}s"


def test_a_hold_has_no_use_where_nothing_is_measured() -> None:
    with pytest.raises(ValidationError, match="hold_seconds: has no use where measured is false; remove it"):
        SchedulerSpec(placement=PlacementMode.EXTENDER, measured=False, hold_seconds=30)


def test_the_extender_follows_the_lease_by_which_the_scheduler_leads(graph: Graph) -> None:
    elected = configuration(graph)["leaderElection"]
    assert elected["leaderElect"] is True
    lease = f"{elected['resourceNamespace']}/{elected['resourceName']}"
    assert environment(containers(graph)["extender"])["LEASE"] == lease == f"{SYSTEM}/gpu-tenancy-scheduler"


def test_the_claim_by_which_waiting_pods_are_tried_again_is_on_nothing(graph: Graph) -> None:
    claim = graph.one("ResourceClaim").inputs
    assert (claim["metadata"]["namespace"], claim["metadata"]["name"]) == (SYSTEM, "gpu-tenancy-scheduler")
    assert claim["spec"] == {}


def test_a_change_of_the_configuration_is_a_rollout(graph: Graph) -> None:
    (volume,) = (v for v in pod(deployment(graph))["volumes"] if v["name"] == "config")
    config_map = graph.one("ConfigMap").inputs
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    assert config_map["immutable"] is True
    other = replace(ARGS, ledger=replace(LEDGER, domain="other.com"))
    assert declared(Scheduler, "s", other).one("ConfigMap").inputs["metadata"]["name"] != config_map["metadata"]["name"]


def test_nothing_in_its_pod_has_a_privilege(graph: Graph) -> None:
    spec = pod(deployment(graph))
    assert spec["securityContext"]["runAsNonRoot"] is True
    for each in containers(graph).values():
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in each["resources"]["limits"]


def test_each_of_the_two_is_restarted_when_it_hangs_and_waited_for_when_it_starts(graph: Graph) -> None:
    for name, port, scheme in (("extender", "metrics", "HTTP"), ("kube-scheduler", 10259, "HTTPS")):
        for probe in ("livenessProbe", "readinessProbe"):
            asked = containers(graph)[name][probe]["httpGet"]
            assert (asked["port"], asked["scheme"]) == (port, scheme)


def test_one_pod_at_most_is_away_and_they_keep_apart_if_they_can(graph: Graph) -> None:
    assert deployment(graph)["spec"]["replicas"] == 2
    assert deployment(graph)["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert graph.one("PodDisruptionBudget").inputs["spec"]["maxUnavailable"] == 1
    (apart,) = pod(deployment(graph))["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert apart["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"


def test_only_the_port_that_answers_questions_can_be_reached(graph: Graph) -> None:
    assert graph.one("NetworkPolicy").inputs["spec"]["policyTypes"] == ["Ingress"]
    scraped = declared(Scheduler, "scheduler", replace(ARGS, cluster=SCRAPED)).one("NetworkPolicy").inputs["spec"]
    assert scraped["ingress"] == [{"from": [PROMETHEUS.peer], "ports": [{"protocol": "TCP", "port": 9555}]}]
    extender = containers(graph)["extender"]
    assert extender["ports"] == [{"name": "metrics", "containerPort": 9555}]
    assert environment(extender)["HTTP_PORT"] == "9555"


def test_without_prometheus_nobody_reaches_it(graph: Graph) -> None:
    assert graph.one("NetworkPolicy").inputs["spec"]["ingress"] == []


def test_every_selector_chooses_its_pods(graph: Graph) -> None:
    labels = deployment(graph)["spec"]["template"]["metadata"]["labels"].items()
    for kind, *path in (
        ("Deployment", "selector", "matchLabels"),
        ("PodDisruptionBudget", "selector", "matchLabels"),
        ("NetworkPolicy", "podSelector", "matchLabels"),
    ):
        selected = graph.one(kind).inputs["spec"]
        for field in path:
            selected = selected[field]
        assert selected.items() <= labels


def test_its_account_reads_what_the_ledger_is_built_from_and_leads_by_its_own_lease(graph: Graph) -> None:
    lease = "gpu-tenancy-scheduler"
    assert rights(graph) == {
        (SYSTEM, "/configmaps", "get", ("gpu-tenancy-ledger",)),
        *(("*", f"/{kind}", verb, ()) for kind in ("pods", "nodes") for verb in ("list", "watch")),
        *(("*", "resource.k8s.io/resourceslices", verb, ()) for verb in ("list", "watch")),
        ("*", "/pods", "get", ()),
        ("*", "/pods/binding", "create", ()),
        ("*", "events.k8s.io/events", "create", ()),
        (SYSTEM, "resource.k8s.io/resourceclaims", "patch", (lease,)),
        *(
            (SYSTEM, "coordination.k8s.io/leases", verb, (lease,))
            for verb in ("get", "list", "watch", "update")
        ),
    }  # fmt: skip


def test_kube_scheduler_has_the_roles_that_kubernetes_made_for_it(graph: Graph) -> None:
    bound = [b.inputs for kind in ("ClusterRoleBinding", "RoleBinding") for b in graph.all(kind)]
    assert {b["roleRef"]["name"] for b in bound} == {
        "gpu-tenancy-scheduler",
        "system:kube-scheduler",
        "system:volume-scheduler",
        "extension-apiserver-authentication-reader",
    }
    (reader,) = (b for b in bound if b["roleRef"]["name"].endswith("reader"))
    assert reader["metadata"]["namespace"] == "kube-system"


def test_each_program_reads_the_environment_that_its_container_gives_it(graph: Graph) -> None:
    from_fields = {"POD_NAME": "pod"}
    for name, settings in (
        ("extender", extender.Settings),
        ("extender", measured.Settings),
        ("certify", certs.Settings),
    ):
        assert agent_environment.read(settings, {**environment(containers(graph)[name]), **from_fields})


def test_the_scheduler_knows_itself_by_the_certificates_that_certify_makes(graph: Graph) -> None:
    (asked,) = configuration(graph)["extenders"]
    files = {Path(path).name for path in asked["tlsConfig"].values()}
    assert files == {f"{certs.AUTHORITY}.crt", f"{certs.CLIENT}.crt", f"{certs.CLIENT}.key"}
    assert {asked[f"{verb}Verb"] for verb in ("filter", "preempt", "bind")} == {
        protocol.FILTER,
        protocol.PREEMPT,
        protocol.BIND,
    }


def test_without_measurements_it_is_not_told_where_they_are(graph: Graph) -> None:
    with_them = environment(containers(graph)["extender"])
    assert (with_them["EXPORTER_NAMESPACE"], with_them["EXPORTER_PORT"]) == ("gpu-tenancy-system-nodes", "9401")
    unmeasured = environment(containers(declared(Scheduler, "s", changed(measured=False)))["extender"])
    assert not {"EXPORTER_NAMESPACE", "EXPORTER_PORT"} & unmeasured.keys()


@pytest.mark.parametrize(
    ("change", "variable", "value"),
    [
        ({}, "SCORING", "best_fit"),
        ({"scoring": Scoring.FRAGMENTATION}, "SCORING", "fragmentation"),
        ({}, "HOLD_SECONDS", "60"),
        ({"hold_seconds": 0}, "HOLD_SECONDS", "0"),
    ],
)
def test_the_extender_is_told_what_the_operator_wants(change: dict[str, Any], variable: str, value: str) -> None:
    assert environment(containers(declared(Scheduler, "s", changed(**change)))["extender"])[variable] == value


def test_the_image_is_the_operators() -> None:
    graph = declared(Scheduler, "s", changed(image="mirror.example/kube-scheduler:v1.37.1"))
    assert containers(graph)["kube-scheduler"]["image"] == "mirror.example/kube-scheduler:v1.37.1"


def test_a_scheduler_without_a_replica_is_refused() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        SchedulerSpec(placement=PlacementMode.EXTENDER, replicas=0)


def test_admission_knows_its_account_and_how_many_devices_a_node_has() -> None:
    pools = (*LEDGER.pools, replace(T4, name="four", device_count=4, node_selector={"zone": "c"}))
    known = by_device(ARGS.spec, CLUSTER, replace(LEDGER, pools=pools))
    assert known.account == f"system:serviceaccount:{SYSTEM}:gpu-tenancy-scheduler"
    assert known.devices == 4
