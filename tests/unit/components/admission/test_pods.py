"""The policies as manifests; that they compile and do what they say is shown by a real API server in tests/e2e."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from components.admission.device import ByDevice
from components.admission.pods import Admission, AdmissionArgs, AdmissionSpec, PoolPlacement
from components.admission.queued import Queued
from components.admission.seats import Seats
from tenancy.ledger import PodSecurity, Tenant
from tenancy.names import Names
from tests.support.engine import Graph, Recorded, names
from tests.support.given import DOMAIN, declared

ARGS = AdmissionArgs(
    spec=AdmissionSpec(
        gpu_priority="gpu",
        tenant_priorities={"tts": "lesser", "lab": "lesser"},
        exempt_namespaces=["nvidia", "kube-system"],  # the second is always
    ),
    names=Names(DOMAIN),
    exempt=["kube-system"],
    without_budget=["tts", "team-a"],
    device_mib=14000,
    queued=[PoolPlacement(name="batch", tenants=["team-a"], node_selector={"a~b/c": "d", "zone": "b"})],
    seated=[PoolPlacement(name="t4", tenants=["immich", "tts"], node_selector={"zone": "a"})],
    priority_tenants={"critical": ["inference"], "gpu": ["inference"]},
    queues=Queued(
        seats=Seats(names=Names(DOMAIN), sizes={"chat": {5000: 1}, "team-a": {100: 2}}),
        tenants=["team-a"],
        account="kueue",
    ),
    tenants=[
        Tenant(name="immich"),
        Tenant(name="tts"),
        Tenant(name="team-a"),
        Tenant(name="strict", pod_security=PodSecurity.RESTRICTED),
    ],
    own=["agents"],
)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return declared(Admission, "admission", ARGS)


def policy(graph: Graph, kind: str, name: str) -> dict[str, Any]:
    return graph.one(f"{kind}AdmissionPolicy", f"admission-gpu-tenancy-{name}").inputs["spec"]


def namespaces(spec: Mapping[str, Any]) -> tuple[str, list[str]] | None:
    """Operator and values of a policy's namespaceSelector; None where it is for every namespace."""
    selector = spec["matchConstraints"]["namespaceSelector"]
    if not selector:
        return None
    by_name, *by_label = selector["matchExpressions"]
    assert by_name["key"] == "kubernetes.io/metadata.name"
    if by_name["operator"] == "NotIn":
        assert by_label == [{"key": "gpu-tenancy/exempt", "operator": "NotIn", "values": ["true"]}]
    return by_name["operator"], by_name["values"]


def test_every_policy_fails_closed_and_is_in_force_by_a_binding_of_its_name(graph: Graph) -> None:
    policies = [*graph.all("ValidatingAdmissionPolicy"), *graph.all("MutatingAdmissionPolicy")]
    assert {p.inputs["spec"]["failurePolicy"] for p in policies} == {"Fail"}
    for declared_policy in policies:
        bound = graph.one(f"{declared_policy.kind}Binding", f"{declared_policy.name}-binding")
        assert bound.inputs["spec"]["policyName"] == declared_policy.inputs["metadata"]["name"]
        assert graph.depends_on(bound, declared_policy)
    assert {name_of(p) for p in policies} == set(graph.outputs_of(graph.one("Admission"))["policies"])


def name_of(resource: Recorded) -> str:
    return str(resource.inputs["metadata"]["name"])


def test_a_refusal_denies(graph: Graph) -> None:
    for bound in graph.all("ValidatingAdmissionPolicyBinding"):
        assert bound.inputs["spec"]["validationActions"] == ["Deny"]
    for bound in graph.all("MutatingAdmissionPolicyBinding"):
        assert "validationActions" not in bound.inputs["spec"]


def test_what_is_exempt_is_out_of_every_policy_for_pods(graph: Graph) -> None:
    everywhere = {f"admission-gpu-tenancy-{name}" for name in ("device-binding", "exemptions")}
    for declared_policy in (*graph.all("ValidatingAdmissionPolicy"), *graph.all("MutatingAdmissionPolicy")):
        chosen = namespaces(declared_policy.inputs["spec"])
        if declared_policy.name in everywhere:
            assert chosen is None
            continue
        assert chosen is not None
        operator, values = chosen
        exempt = {"kube-system"}
        assert exempt <= set(values) if operator == "NotIn" else exempt.isdisjoint(values)


def test_gpu_pods_get_the_gpu_class_but_for_tenants_with_one_of_their_own(graph: Graph) -> None:
    default, own = policy(graph, "Mutating", "stamp-priority"), policy(graph, "Mutating", "stamp-priority-lesser")
    assert namespaces(default) == ("NotIn", ["kube-system", "lab", "tts"])
    assert namespaces(own) == ("In", ["lab", "tts"])
    for spec, priority in ((default, "gpu"), (own, "lesser")):
        (mutation,) = spec["mutations"]
        expression = mutation["jsonPatch"]["expression"]
        assert f'path: "/spec/priorityClassName", value: "{priority}"' in expression
        assert "has(object.spec.priority) ?" in expression
        assert "has(object.spec.preemptionPolicy) ?" in expression


def test_queued_pods_go_to_their_pool_with_every_label_escaped(graph: Graph) -> None:
    spec = policy(graph, "Mutating", "place-queued-batch")
    assert namespaces(spec) == ("In", ["team-a"])
    expression = spec["mutations"][0]["jsonPatch"]["expression"]
    assert 'path: "/spec/nodeSelector/a~0b~1c", value: "d"' in expression
    assert 'path: "/spec/nodeSelector/zone", value: "b"' in expression
    assert expression.index("has(object.spec.nodeSelector)") < expression.index("a~0b~1c")


def test_gpu_pods_go_to_the_pool_of_their_tenants_seats_with_or_without_a_budget(graph: Graph) -> None:
    spec = policy(graph, "Mutating", "place-seated-t4")
    assert namespaces(spec) == ("In", ["immich", "tts"])
    assert [condition["name"] for condition in spec["matchConditions"]] == ["reaches-a-gpu"]
    assert 'path: "/spec/nodeSelector/zone", value: "a"' in spec["mutations"][0]["jsonPatch"]["expression"]


def test_a_gpu_pod_without_a_budget_is_told_what_to_add(graph: Graph) -> None:
    spec = policy(graph, "Validating", "gpu-budget")
    assert namespaces(spec) == ("NotIn", ["kube-system", "team-a", "tts"])
    budget, size = spec["validations"]
    assert f"add {DOMAIN}/gpumem (MiB) to the limits" in budget["message"]
    assert "(14000 MiB)" in size["message"]
    assert "<= 14000" in size["expression"]
    assert {"name": "devices", "expression": "1"} in spec["variables"]


def test_devices_are_the_schedulers_to_give(graph: Graph) -> None:
    choice, binding = policy(graph, "Validating", "device-choice"), policy(graph, "Validating", "device-binding")
    assert "NVIDIA_VISIBLE_DEVICES" in choice["validations"][0]["message"]
    looked_at = {(r["operations"][0], *r["resources"]) for r in choice["matchConstraints"]["resourceRules"]}
    assert looked_at == {
        ("CREATE", "pods"),
        ("UPDATE", "pods", "pods/status", "pods/ephemeralcontainers", "pods/resize"),
    }
    assert binding["matchConstraints"]["resourceRules"][0]["resources"] == ["pods/binding", "bindings"]
    assert binding["matchConditions"][0]["expression"] == 'request.userInfo.username != "system:kube-scheduler"'


BY_DEVICE = replace(ARGS, by_device=ByDevice(account="system:serviceaccount:agents:scheduler", devices=4))


def test_pods_are_placed_by_device_only_where_a_scheduler_does_it(graph: Graph) -> None:
    added = names(declared(Admission, "admission", BY_DEVICE).all("MutatingAdmissionPolicy"))
    added |= names(declared(Admission, "admission", BY_DEVICE).all("ValidatingAdmissionPolicy"))
    assert added - names(graph.all("MutatingAdmissionPolicy")) - names(graph.all("ValidatingAdmissionPolicy")) == {
        "admission-gpu-tenancy-device-stamp",
        "admission-gpu-tenancy-device-placed",
    }


def test_the_scheduler_that_places_by_device_writes_the_device_and_the_clusters_does_not() -> None:
    binding = policy(declared(Admission, "admission", BY_DEVICE), "Validating", "device-binding")
    (condition,) = binding["matchConditions"]
    assert condition["expression"] == 'request.userInfo.username != "system:serviceaccount:agents:scheduler"'


def test_a_pod_on_several_devices_may_ask_for_as_much_as_they_offer() -> None:
    spec = policy(declared(Admission, "admission", BY_DEVICE), "Validating", "gpu-budget")
    (devices,) = (v["expression"] for v in spec["variables"] if v["name"] == "devices")
    assert f"{DOMAIN}/gpu-count" in devices
    assert "<= 14000 * variables.devices" in spec["validations"][1]["expression"]


@pytest.mark.parametrize(
    ("priority", "allowed", "message"),
    [
        ("lesser", {"lab", "tts"}, "is only for tenant lab, tenant tts"),
        ("critical", {"inference"}, "is only for tenant inference"),
        ("gpu", {"inference"}, "is only for pods that reach a GPU, tenant inference"),
    ],
)
def test_a_class_is_for_those_it_was_made_for(graph: Graph, priority: str, allowed: set[str], message: str) -> None:
    spec = policy(graph, "Validating", f"priority-use-{priority}")
    assert namespaces(spec) == ("NotIn", sorted({"kube-system"} | allowed))
    (validation,) = spec["validations"]
    assert message in validation["message"]
    assert (validation["expression"] == "false") == (priority != "gpu")
    assert f'priorityClassName == "{priority}"' in spec["matchConditions"][0]["expression"]


def test_a_class_for_the_exempt_is_for_nobody_else() -> None:
    spec = AdmissionSpec(gpu_priority="gpu", exempt_priorities=["longhorn-critical"])
    graph = declared(Admission, "admission", replace(ARGS, spec=spec))
    use = policy(graph, "Validating", "priority-use-longhorn-critical")
    assert namespaces(use) == ("NotIn", ["kube-system"])
    (validation,) = use["validations"]
    assert validation["expression"] == "false"
    assert "longhorn-critical is only for exempt namespaces" in validation["message"]


def test_policies_do_not_grow_with_the_tenants() -> None:
    """Names are compared by the API server's label selectors, not by CEL, whose expressions have a cost limit."""

    def longest(tenants: int) -> int:
        many = [f"team-{n}" for n in range(tenants)]
        placed = PoolPlacement(name="batch", tenants=many, node_selector={"zone": "b"})
        args = replace(ARGS, without_budget=many, queued=[placed], seated=[placed])
        graph = declared(Admission, "admission", args)
        specs = [p.inputs["spec"] for kind in ("Validating", "Mutating") for p in graph.all(f"{kind}AdmissionPolicy")]
        return max(len(e) for spec in specs for e in expressions(spec))

    assert longest(1) == longest(500)


def expressions(value: Any) -> list[str]:
    if isinstance(value, list):
        return [e for item in value for e in expressions(item)]
    if not isinstance(value, Mapping):
        return []
    own = [value["expression"]] if "expression" in value else []
    return own + [e for item in value.values() for e in expressions(item)]


def test_without_tenants_of_their_own_there_is_one_class_and_no_placement() -> None:
    bare = replace(ARGS, spec=AdmissionSpec(gpu_priority="gpu"), queued=[], seated=[], priority_tenants={})
    graph = declared(Admission, "admission", bare)
    assert names(graph.all("MutatingAdmissionPolicy")) == {
        "admission-gpu-tenancy-stamp-priority",
        "admission-gpu-tenancy-device-hide",
        "admission-gpu-tenancy-device-stamp-debug",
    }
    assert [name_of(p) for p in graph.all("ValidatingAdmissionPolicy") if "priority-use" in p.name] == [
        "gpu-tenancy-priority-use-gpu"
    ]


def test_only_the_system_and_the_stack_itself_have_the_systems_classes(graph: Graph) -> None:
    spec = policy(graph, "Validating", "priority-system")
    assert namespaces(spec) == ("NotIn", ["agents", "kube-system"])
    (condition,) = spec["matchConditions"]
    assert "startsWith('system-')" in condition["expression"].replace('"', "'")
    (validation,) = spec["validations"]
    assert validation["expression"] == "false"


def test_what_a_webhook_adds_later_is_stamped_as_well_and_a_class_is_given_once(graph: Graph) -> None:
    again = {p.name: p.inputs["spec"]["reinvocationPolicy"] for p in graph.all("MutatingAdmissionPolicy")}
    assert {name for name, policy in again.items() if policy == "Never"} == {
        "admission-gpu-tenancy-stamp-priority",
        "admission-gpu-tenancy-stamp-priority-lesser",
    }


def test_containers_that_ask_for_no_device_are_shown_none_in_every_namespace(graph: Graph) -> None:
    spec = policy(graph, "Mutating", "device-hide")
    assert namespaces(spec) == ("NotIn", ["kube-system"])
    assert "matchConditions" not in spec
    expression = spec["mutations"][0]["jsonPatch"]["expression"]
    for asked in (f'k == "{DOMAIN}/gpumem"', 'k == "nvidia.com/gpu"', 'startsWith("nvidia.com/mig-")'):
        assert asked in expression


def test_a_route_needs_a_budget_but_where_pods_are_on_record_without_one(graph: Graph) -> None:
    runtimes = policy(graph, "Validating", "device-runtimes")
    assert namespaces(runtimes) == ("NotIn", ["kube-system", "team-a", "tts"])
    assert runtimes["paramKind"] == {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}


def test_a_runtime_is_judged_by_every_class_of_the_cluster(graph: Graph) -> None:
    bound = graph.one("ValidatingAdmissionPolicyBinding", "admission-gpu-tenancy-device-runtimes-binding").inputs[
        "spec"
    ]
    assert bound["paramRef"] == {"selector": {}, "parameterNotFoundAction": "Allow"}


def test_environments_are_judged_where_the_device_plugins_choice_counts(graph: Graph) -> None:
    assert namespaces(policy(graph, "Validating", "device-environment")) == ("NotIn", ["kube-system"])
    placed = declared(Admission, "admission", BY_DEVICE)
    assert namespaces(policy(placed, "Validating", "device-environment")) == ("In", ["team-a", "tts"])


def test_claims_may_be_on_seats_and_on_what_is_listed() -> None:
    spec = AdmissionSpec(gpu_priority="gpu", device_classes=["nic.example.com"])
    claims = policy(declared(Admission, "admission", replace(ARGS, spec=spec)), "Validating", "device-claims")
    (validation,) = claims["validations"]
    assert 'in ["nic.example.com"]' in validation["expression"]
    assert f'endsWith(".gpumem.{DOMAIN}")' in validation["expression"]


def test_the_stack_labels_what_is_exempt_before_anything_is_refused(graph: Graph) -> None:
    patch = graph.one("NamespacePatch")
    assert patch.inputs["metadata"] == {"name": "nvidia", "labels": {"gpu-tenancy/exempt": "true"}}
    for declared_policy in (*graph.all("ValidatingAdmissionPolicy"), *graph.all("MutatingAdmissionPolicy")):
        assert graph.depends_on(declared_policy, patch)


def test_a_pod_with_a_budget_gets_no_more_whole_devices_than_it_is_on(graph: Graph) -> None:
    spec = policy(graph, "Validating", "whole-devices")
    assert namespaces(spec) == ("NotIn", ["kube-system"])
    (validation,) = spec["validations"]
    assert all(f'"nvidia.com/{resource}"' in validation["expression"] for resource in ("gpu", "gpu.", "mig-"))


def test_who_has_no_budget_asks_for_what_its_quota_counts(graph: Graph) -> None:
    spec = policy(graph, "Validating", "counted-gpus")
    assert namespaces(spec) == ("In", ["tts"])
    (condition,) = spec["matchConditions"]
    assert 'k in ["nvidia.com/gpu", "nvidia.com/gpu.shared"]' in condition["expression"]


def test_a_gpu_pod_without_a_seat_has_a_longest_grace_however_it_goes(graph: Graph) -> None:
    asked, given = (policy(graph, "Validating", name) for name in ("grace", "grace-deletion"))
    assert namespaces(asked) == namespaces(given) == ("In", ["team-a", "tts"])
    rules = given["matchConstraints"]["resourceRules"]
    assert {(rule["operations"][0], *rule["resources"]) for rule in rules} == {
        ("DELETE", "pods"),
        ("CREATE", "pods/eviction"),
    }
    (validation,) = given["validations"]
    assert "has(object." not in validation["expression"]  # of a pod that is deleted there is only the old one


def test_controllers_alone_take_a_running_pod_out_of_its_job(graph: Graph) -> None:
    kept = policy(graph, "Validating", "queued-pods-kept")
    assert namespaces(kept) == ("In", ["team-a"])
    condition, *_ = kept["matchConditions"]
    accounts = ("job-controller", "generic-garbage-collector")
    assert all(f"system:serviceaccount:kube-system:{account}" in condition["expression"] for account in accounts)
    deletion = policy(graph, "Validating", "queued-jobs-deletion")
    assert all("(object.spec" not in expression for expression in expressions(deletion))


def test_a_namespace_is_exempt_only_if_who_may_change_policies_says_so(graph: Graph) -> None:
    spec = policy(graph, "Validating", "exemptions")
    assert namespaces(spec) is None
    (may,) = spec["validations"]
    assert ".check('update').allowed()" in may["expression"]
    looked_at = {(r["operations"][0], *r["resources"]) for r in spec["matchConstraints"]["resourceRules"]}
    assert looked_at == {
        ("CREATE", "namespaces"),
        ("UPDATE", "namespaces", "namespaces/status", "namespaces/finalize"),
    }


def test_gpus_are_for_tenants(graph: Graph) -> None:
    spec = policy(graph, "Validating", "gpu-tenants")
    assert namespaces(spec) == ("NotIn", ["immich", "kube-system", "strict", "team-a", "tts"])
    (condition,) = spec["matchConditions"]
    assert all(text in condition["expression"] for text in ('"nvidia.com/"', f"{DOMAIN}/gpumem", f"{DOMAIN}/gpu-count"))


def test_seats_have_sizes_where_nobody_queues(graph: Graph) -> None:
    spec = policy(graph, "Validating", "seat-sizes")
    assert namespaces(spec) == ("In", ["chat"])
    sizes = {v["name"]: v["expression"] for v in spec["variables"]}["sizes"]
    assert sizes.startswith('{"chat": {5000: 1}}[?request.namespace]')
    assert "5000" in spec["validations"][0]["messageExpression"]


def test_without_seats_and_queues_there_is_nothing_to_judge_them_by() -> None:
    bare = replace(ARGS, queues=Queued(seats=Seats(names=Names(DOMAIN)), tenants=[], account="kueue"))
    found = {name_of(p) for p in declared(Admission, "admission", bare).all("ValidatingAdmissionPolicy")}
    assert "gpu-tenancy-seat-sizes" not in found
    assert not [name for name in found if name.startswith("gpu-tenancy-queued-")]


def test_without_tenants_without_a_budget_nobody_is_counted_or_hurried() -> None:
    bare = replace(ARGS, without_budget=[], queues=replace(ARGS.queues, tenants=[]))
    found = {name_of(p) for p in declared(Admission, "admission", bare).all("ValidatingAdmissionPolicy")}
    assert found.isdisjoint({"gpu-tenancy-counted-gpus", "gpu-tenancy-grace", "gpu-tenancy-grace-deletion"})


def test_in_a_queue_tenant_only_kueue_starts_what_uses_a_gpu(graph: Graph) -> None:
    on_pods, on_jobs = (policy(graph, "Validating", f"queued-{kind}") for kind in ("pods", "jobs"))
    assert namespaces(on_pods) == namespaces(on_jobs) == ("In", ["team-a"])
    assert "system:serviceaccount:kube-system:job-controller" in on_pods["validations"][0]["expression"]
    assert any('request.userInfo.username == "kueue"' in v["expression"] for v in on_jobs["validations"])
    (condition,) = on_jobs["matchConditions"]
    assert "object.spec.template.spec.containers" in condition["expression"]
    assert "object.spec.containers" not in condition["expression"]


def test_a_tenants_namespace_enforces_its_level_or_a_stricter_one(graph: Graph) -> None:
    def lax(level: str) -> list[tuple[str, list[str]]]:
        selector = policy(graph, "Validating", f"pod-security-{level}")["matchConstraints"]["namespaceSelector"]
        return [(each["operator"], each["values"]) for each in selector["matchExpressions"]]

    assert lax("baseline") == [("In", ["immich", "team-a", "tts"]), ("NotIn", ["baseline", "restricted"])]
    assert lax("restricted") == [("In", ["strict"]), ("NotIn", ["restricted"])]


def test_a_privileged_tenant_is_held_to_nothing() -> None:
    free = replace(ARGS, tenants=[Tenant(name="vm", pod_security=PodSecurity.PRIVILEGED, pod_security_reason="KVM")])
    found = {name_of(p) for p in declared(Admission, "admission", free).all("ValidatingAdmissionPolicy")}
    assert not [name for name in found if name.startswith("gpu-tenancy-pod-security")]
