"""Tests which kinds of work a queue tenant may create, on a real API server with prod's policies.
tests/e2e/queues/test_frameworks.py tests the real kinds with their controllers.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from stacks import platform
from tenancy import names
from tenancy.frameworks import FRAMEWORKS, GATES, Framework, FrameworkName
from tenancy.names import JOB_CONTROLLERS, service_account_user
from tests.support.e2e.admitted import GPUS, QUEUES, Pod, asks, configuration, container, create, pod, put_into_force
from tests.support.e2e.server import ApiAnswer, ApiServer
from tests.support.e2e.tenant import TENANT, may_write
from tests.support.engine import build
from tests.support.prod import drop, put
from tests.support.waiting import eventually
from toolchain.cluster.api import MERGE

KUEUE = service_account_user("kueue-system", names.KUEUE_SERVICE_ACCOUNT)
CUSTOM = [each for each in FRAMEWORKS.values() if each.is_suspended and each.group != "batch"]
HERE = "team-a"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> Iterator[ApiServer]:
    for each in CUSTOM:
        server.api.create(DEFINITIONS, definition(each))
    put_into_force(server, drop("scheduler"), put("queues frameworks", [str(name) for name in FrameworkName]))
    users = {TENANT, KUEUE, *JOB_CONTROLLERS, *(account for each in CUSTOM for account in each.accounts)}
    for user in sorted(users):
        may_write(server, user, ["*"], "*")
    for each in CUSTOM:
        eventually(partial(is_refused, server, each), f"the policy on {each.kind} is in force")
    yield server
    for each in CUSTOM:
        server.api.request("DELETE", f"{DEFINITIONS}/{each.resource}.{each.group}")


def is_refused(server: ApiServer, framework: Framework) -> bool:
    return "Kueue" in (submit(server, work(framework)).refusal or "")


def definition(framework: Framework) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{framework.resource}.{framework.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
        },
        "spec": {
            "group": framework.group,
            "scope": "Namespaced",
            "names": {"plural": framework.resource, "kind": framework.kind, "singular": framework.kind.lower()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def work(framework: Framework, *, suspend: bool | None = None, **spec: Any) -> dict[str, Any]:
    held = {} if suspend is None else {"suspend": suspend}
    body = {"runPolicy": held} if framework.name is FrameworkName.MPI_JOB else held
    metadata = {"name": "work", "labels": {names.KUEUE_QUEUE_LABEL: "team-a-gpu"}}
    api = f"{framework.group}/v1"
    return {"apiVersion": api, "kind": framework.kind, "metadata": metadata, "spec": {**body, **spec}}


def path(framework: Framework) -> str:
    return f"/apis/{framework.group}/v1/namespaces/{HERE}/{framework.resource}"


def submit(server: ApiServer, manifest: dict[str, Any], *, user: str = TENANT, dry_run: bool = True) -> ApiAnswer:
    framework = next(each for each in CUSTOM if each.kind == manifest["kind"])
    return server.request("POST", f"{path(framework)}{'?dryRun=All' if dry_run else ''}", manifest, user=user)


def change(server: ApiServer, framework: Framework, spec: dict[str, Any], *, user: str = TENANT) -> str | None:
    return server.request("PATCH", f"{path(framework)}/work", {"spec": spec}, user=user, content_type=MERGE).refusal


def part_of(framework: Framework, manifest: dict[str, Any]) -> dict[str, Any]:
    api = f"{framework.group}/v1"
    owner = {"apiVersion": api, "kind": framework.kind, "name": "work", "uid": "1", "controller": True}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


def suspended(framework: Framework, *, suspend: bool) -> dict[str, Any]:
    return work(framework, suspend=suspend)["spec"]


@pytest.mark.parametrize("framework", CUSTOM, ids=lambda each: each.kind)
def test_work_waits_until_kueue_starts_it(cluster: ApiServer, framework: Framework) -> None:
    assert "Kueue suspends it" in (submit(cluster, work(framework)).refusal or "")
    assert submit(cluster, work(framework, suspend=True, size=2), dry_run=False).refusal is None
    starts, waits = suspended(framework, suspend=False), suspended(framework, suspend=True)
    assert "only Kueue starts it" in (change(cluster, framework, starts) or "")
    assert change(cluster, framework, {"size": 3}) is None
    assert change(cluster, framework, starts, user=KUEUE) is None
    assert "its pods may only become fewer" in (change(cluster, framework, {"size": 4}) or "")
    assert change(cluster, framework, waits) is None
    orphan = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}
    refusal = cluster.request("DELETE", f"{path(framework)}/work", orphan, user=TENANT).refusal
    assert "its pods would keep the GPUs" in (refusal or "")
    assert cluster.request("DELETE", f"{path(framework)}/work", user=TENANT).refusal is None


@pytest.mark.parametrize("framework", CUSTOM, ids=lambda each: each.kind)
def test_only_its_controller_makes_the_parts_of_work(cluster: ApiServer, framework: Framework) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [container(limits=GPUS)]}}
    spec = {"template": template}
    job = part_of(framework, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "part"}, "spec": spec})
    jobs = f"/apis/batch/v1/namespaces/{HERE}/jobs?dryRun=All"
    assert cluster.request("POST", jobs, job, user=framework.accounts[0]).refusal is None
    assert "Kueue suspends it" in (cluster.request("POST", jobs, job, user=TENANT).refusal or "")
    alone = {**job, "metadata": {"name": "part"}}
    assert "Kueue suspends it" in (cluster.request("POST", jobs, alone, user=framework.accounts[0]).refusal or "")
    made = part_of(framework, asks(gpu="1"))
    refusal = create(cluster, HERE, made, user=framework.accounts[0]).refusal
    assert refusal is None if framework.makes_pods else QUEUES in (refusal or "")
    assert QUEUES in (create(cluster, HERE, made, user=TENANT).refusal or "")


def gated(*gates: str) -> Pod:
    manifest = asks(gpu="1")
    return {**manifest, "spec": {**manifest["spec"], "schedulingGates": [{"name": gate} for gate in gates]}}


def test_a_pod_waits_at_kueues_gate_and_only_kueue_opens_it(cluster: ApiServer) -> None:
    assert QUEUES in (create(cluster, HERE, asks(gpu="1")).refusal or "")
    assert QUEUES in (create(cluster, HERE, gated("example.com/mine")).refusal or "")
    assert create(cluster, HERE, gated(*GATES), user=TENANT, dry_run=False).refusal is None
    pods = f"/api/v1/namespaces/{HERE}/pods/pod"

    def leave(*gates: str, user: str) -> str | None:
        patch = {"spec": {"schedulingGates": [{"name": gate} for gate in gates] or None}}
        return cluster.request("PATCH", pods, patch, user=user, content_type=MERGE).refusal

    for gates in ([], GATES[:1], GATES[1:]):
        assert "only Kueue removes" in (leave(*gates, user=TENANT) or "")
    assert leave(GATES[1], user=KUEUE) is None
    assert leave(user=KUEUE) is None
    assert cluster.request("DELETE", f"{pods}?gracePeriodSeconds=0").refusal is None


@pytest.mark.parametrize("kind", ["deployments", "statefulsets"])
def test_a_gated_kind_goes_with_its_pods(cluster: ApiServer, kind: str) -> None:
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": pod()["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template, "serviceName": "x"}
    named = {"deployments": "Deployment", "statefulsets": "StatefulSet"}[kind]
    manifest = {"apiVersion": "apps/v1", "kind": named, "metadata": {"name": "x"}, "spec": spec}
    where = f"/apis/apps/v1/namespaces/{HERE}/{kind}"
    assert cluster.request("POST", where, manifest, user=TENANT).refusal is None
    orphan = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}
    refusal = cluster.request("DELETE", f"{where}/x", orphan, user=TENANT).refusal
    assert "its pods would keep the GPUs" in (refusal or "")
    assert cluster.request("DELETE", f"{where}/x", user=TENANT).refusal is None


@pytest.mark.parametrize("frameworks", [["pod"], ["pod", "deployment"], ["batch/job"]])
def test_the_api_server_accepts_the_policies_for_any_frameworks(cluster: ApiServer, frameworks: list[str]) -> None:
    stack = configuration(drop("scheduler"), put("queues frameworks", frameworks))
    kind = "ValidatingAdmissionPolicy"
    found = [o for o in build(lambda: platform.build(stack)).objects() if o["kind"] == kind]
    queued = [policy for policy in found if "-queued-" in policy["metadata"]["name"]]
    assert len(queued) == (2 if frameworks == ["pod"] else 3)
    for policy in queued:
        renamed = {**policy, "metadata": {"name": "tried"}}
        path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?dryRun=All"
        assert cluster.request("POST", path, renamed).refusal is None
