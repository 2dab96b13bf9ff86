"""Tests that each namespace gets the right admission policies."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from components.admission.pods import Admission, AdmissionArgs, AdmissionSpec
from tenancy.admission.parts import AdmissionRules, parts, policies
from tenancy.choices import PodSecurity, Sharing
from tenancy.frameworks import FRAMEWORKS, FrameworkName
from tenancy.ledger import AdmissionTerms, Ledger, LocalQueue, OnDemand, Pool, QueueQuota, Seat, Tenant
from tenancy.names import GPU
from tests.support.engine import Graph
from tests.support.given import DOMAIN, declared

T4 = Pool(name="t4", nodes=1, device_count=4, memory_mib=15360, reserve_mib=1360, node_selector={"zone": "a"})
BATCH = Pool(name="batch", nodes=1, device_count=1, sharing=Sharing.WHOLE, node_selector={"a~b/c": "d", "zone": "b"})
LEDGER = Ledger(
    domain=DOMAIN,
    pools=(T4, BATCH),
    seats=(
        Seat(name="chat", tenant="chat", pool="t4", gpumem_mib=5000),
        Seat(name="train", tenant="team-a", pool="t4", gpumem_mib=100, replicas=2),
    ),
    on_demand=(OnDemand(name="tts", tenant="tts", pool="t4", need_mib=2048),),
    quotas=(QueueQuota(queue="gpu", flavor="any", pool="batch", resource=GPU, nominal=1),),
    local_queues=(LocalQueue(name="gpu", tenant="team-a", queue="gpu"),),
    queue_tenants=("team-a",),
    tenants=(
        Tenant(name="chat"),
        Tenant(name="tts"),
        Tenant(name="team-a"),
        Tenant(name="strict", pod_security=PodSecurity.RESTRICTED),
    ),
)
TERMS = AdmissionTerms(
    gpu_priority="gpu",
    priorities={"gpu": ("inference",), "lesser": ("lab", "tts"), "critical": ("inference",)},
    own=("agents", "kueue-system"),
    tenant_priorities={"tts": "lesser", "lab": "lesser"},
)
RULES = AdmissionRules(
    ledger=LEDGER,
    terms=TERMS,
    kueue="system:serviceaccount:kueue-system:kueue-controller-manager",
    frameworks=[FRAMEWORKS[FrameworkName.JOB]],
)
ARGS = AdmissionArgs(
    spec=AdmissionSpec(
        gpu_priority="gpu",
        exempt_namespaces=["nvidia", "kube-system"],  # the namespace kube-system is always exempt
    ),
    rules=RULES,
)
BY_DEVICE = replace(RULES, terms=replace(TERMS, devices=4))


@pytest.fixture(scope="module")
def graph() -> Graph:
    return declared(Admission, "admission", ARGS)


def specs(rules: AdmissionRules = RULES) -> dict[str, dict[str, Any]]:
    return {p["metadata"]["name"].removeprefix("gpu-tenancy-"): p["spec"] for p in parts(rules)}


def namespaces(spec: Mapping[str, Any]) -> tuple[str, list[str]] | None:
    selector = spec["matchConstraints"]["namespaceSelector"]
    if not selector:
        return None
    by_name, *by_label = selector["matchExpressions"]
    assert by_name["key"] == "kubernetes.io/metadata.name"
    if by_name["operator"] == "NotIn":
        assert by_label == [{"key": "gpu-tenancy/exempt", "operator": "NotIn", "values": ["true"]}]
    return by_name["operator"], by_name["values"]


def test_every_policy_fails_closed_and_is_in_force_by_a_binding_of_its_name(graph: Graph) -> None:
    declared_policies = [*graph.all("ValidatingAdmissionPolicy"), *graph.all("MutatingAdmissionPolicy")]
    assert len(declared_policies) == len(policies(RULES))
    for each in declared_policies:
        assert each.inputs["spec"]["failurePolicy"] == "Fail"
        bound = graph.one(f"{each.kind}Binding", f"{each.name}-binding")
        assert bound.inputs["spec"]["policyName"] == each.inputs["metadata"]["name"]
        assert bound.inputs["spec"].get("validationActions") == (["Deny"] if "Validating" in each.kind else None)
        assert graph.depends_on(bound, each)
        assert graph.depends_on(each, graph.one("NamespacePatch"))  # the label of an exempt namespace


EVERYWHERE_BUT = {
    "stamp-priority": ["kube-system", "lab", "tts"],
    "gpu-budget": ["kube-system", "team-a", "tts"],
    "gpu-tenants": ["chat", "kube-system", "strict", "team-a", "tts"],
    "priority-use-lesser": ["kube-system", "lab", "tts"],
    "priority-use-critical": ["inference", "kube-system"],
    "priority-use-gpu": ["inference", "kube-system"],
    "priority-system": ["agents", "kube-system", "kueue-system"],
    "device-environment": ["kube-system"],
    "gpu-pod-stamp": ["kube-system"],
}
QUEUED = {"queued-pods", "queued-owners"}
ONLY = {
    "stamp-priority-lesser": ["lab", "tts"],
    "place-queued-batch": ["team-a"],
    "place-seated-t4": ["chat", "tts"],
    "counted-gpus": ["tts"],
    "grace": ["team-a", "tts"],
    **{name: ["team-a"] for name in QUEUED},
    "seat-sizes": ["chat"],
    "pod-security-baseline": ["chat", "team-a", "tts"],
    "pod-security-restricted": ["strict"],
}


def test_each_policy_is_for_its_namespaces() -> None:
    found = {name: namespaces(spec) for name, spec in specs().items()}
    assert {name: found[name] for name in EVERYWHERE_BUT} == {n: ("NotIn", v) for n, v in EVERYWHERE_BUT.items()}
    assert {name: found[name] for name in ONLY} == {n: ("In", v) for n, v in ONLY.items()}
    assert namespaces(specs(BY_DEVICE)["device-environment"]) == ("In", ["team-a", "tts"])


def test_labels_are_escaped_in_the_patch_of_a_node_selector() -> None:
    expression = specs()["place-queued-batch"]["mutations"][0]["jsonPatch"]["expression"]
    assert 'path: "/spec/nodeSelector/a~0b~1c", value: "d"' in expression


@pytest.mark.parametrize(
    ("args", "account"),
    [(RULES, "system:kube-scheduler"), (BY_DEVICE, "system:serviceaccount:agents:gpu-tenancy-scheduler")],
)
def test_only_the_scheduler_that_places_by_device_writes_the_device(args: AdmissionArgs, account: str) -> None:
    (condition,) = specs(args)["device-binding"]["matchConditions"]
    assert condition["expression"] == f'request.userInfo.username != "{account}"'
