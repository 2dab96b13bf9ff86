"""Tests the modes observe and enforce."""

from typing import Any

import pytest

from stacks import platform, settings
from tenancy import names, policy_names
from tests.support.engine import Graph, build
from tests.support.given import environment, rights
from tests.support.graphs import judge
from tests.support.prod import Change, Raw, declared, put, raw

# These admission policies deny requests even if the stack observes.
OF_PROD = {name for name in policy_names.GUARDS if "seat" not in name}


def changed(*changes: Change) -> Raw:
    config = raw()
    for change in (put("mode", "observe"), *changes):
        change(config)
    return config


def built(*changes: Change) -> Graph:
    return build(lambda: platform.build(settings.parse(changed(*changes))))


@pytest.fixture(scope="module")
def observing() -> Graph:
    return built()


def actions(graph: Graph) -> dict[str, list[str]]:
    bindings = graph.all("ValidatingAdmissionPolicyBinding")
    return {b.inputs["metadata"]["name"]: b.inputs["spec"]["validationActions"] for b in bindings}


def test_policies_warn_and_audit_but_for_those_that_guard_our_own_data(observing: Graph) -> None:
    found = actions(observing)
    assert {name for name, given in found.items() if given == ["Deny"]} == OF_PROD
    assert all(given == ["Warn", "Audit"] for name, given in found.items() if name not in OF_PROD)
    assert policy_names.GPU_BUDGET in found


def test_no_policy_changes_a_pod_and_none_judges_what_such_a_change_would_have_made(observing: Graph) -> None:
    assert observing.all("MutatingAdmissionPolicyBinding") == []
    unbound = {p.inputs["metadata"]["name"] for p in observing.all("ValidatingAdmissionPolicy")} - {*actions(observing)}
    assert policy_names.DEVICE_PLACED in unbound
    assert all(name in (policy_names.DEVICE_PLACED, policy_names.DEVICE_CAPPED) or "memory" in name for name in unbound)


def test_no_tenant_has_a_quota_and_no_namespace_enforces_its_level(observing: Graph) -> None:
    tenants = raw()["tenants"]
    assert not [q for q in observing.all("ResourceQuota") if q.inputs["metadata"]["namespace"] in tenants]
    labels = observing.one("NamespacePatch", "immich-namespace").inputs["metadata"]["labels"]
    found = {key: labels.get(key) for key in (names.POD_SECURITY_ENFORCE, names.POD_SECURITY_WARN)}
    assert found == {names.POD_SECURITY_ENFORCE: None, names.POD_SECURITY_WARN: "baseline"}
    assert labels[names.POD_SECURITY_AUDIT] == "baseline"


def test_watchdog_and_gate_only_report_and_have_no_right_to_act_though_they_are_armed(observing: Graph) -> None:
    dry = {job.name: environment(dict(job.inputs)).get("DRY_RUN") for job in observing.all("CronJob")}
    assert {name: dry[name] for name in ("watchdog-cron-job", "gate-cron-job")} == {
        "watchdog-cron-job": "true",
        "gate-cron-job": "true",
    }
    held = {resource.partition("/")[2] for _, resource, _, _ in rights(observing)}
    assert {"pods/eviction", "deployments/scale"}.isdisjoint(held)
    assert not [found for found in observing.all("DaemonSet") if names.GUARD in found.name]


@pytest.mark.parametrize(
    ("changes", "observed"),
    [
        ((), ("admission", "watchdog", "gate", "tenants", "memory_pools")),
        ((put("admission mode", "enforce"),), ("watchdog", "gate", "tenants", "memory_pools")),
        ((put("mode", "enforce"),), ()),
        ((put("mode", "enforce"), put("admission mode", "observe")), ("admission",)),
        ((put("mode", "enforce"), put("tenants tts mode", "observe")), ("tenants.tts",)),
    ],
)
def test_a_part_has_the_mode_of_its_own_or_that_of_the_stack(changes: tuple[Change, ...], observed: Any) -> None:
    assert settings.parse(changed(*changes)).ledger().observes == observed


@pytest.mark.no_cover
def test_a_part_that_enforces_acts_in_a_stack_that_observes() -> None:
    graph = built(put("admission mode", "enforce"), put("tenants tts mode", "enforce"))
    assert set(map(tuple, actions(graph).values())) == {("Deny",)}
    assert environment(dict(graph.one("CronJob", "watchdog-cron-job").inputs))["DRY_RUN"] == "true"
    assert [q.inputs["metadata"]["namespace"] for q in graph.all("ResourceQuota") if "quota" in q.name][:1] == ["tts"]


def test_the_policy_pack_accepts_a_stack_that_observes_and_still_judges_its_sums() -> None:
    assert judge(declared(changed())) == []
    (reported,) = judge(declared(changed(put("residents llama-swap gpumem_mib", 6000))))[:1]
    assert "t4" in reported


def test_the_policy_pack_refuses_caps_that_nothing_would_set() -> None:
    capped = put("pools t4 enforce", "driver")
    (reported,) = judge(declared(changed(capped)))
    assert "write admission.mode: enforce" in reported
    assert judge(declared(changed(capped, put("admission mode", "enforce")))) == []
