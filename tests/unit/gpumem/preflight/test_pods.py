"""Tests what preflight finds by trying the stack's pods, and what it finds of other programs."""

from dataclasses import replace
from typing import Any

import pytest

from agents.kube.errors import ApiError
from gpumem import survey
from gpumem.preflight.part import State
from gpumem.preflight.report import Preflight, preflight
from stacks import settings
from stacks.existing.workloads import workloads
from tenancy.choices import Sharing
from tenancy.ledger import Pool, QueueQuota
from tests.support.before_rollout import DECLARED, LEDGER, budgeted, ready
from tests.support.given_clusters import GPU, Cluster, node, of_deployment, pod
from tests.support.kubectl import FakeApi
from tests.support.paths import ROOT

HOME = "gpu-tenancy-system-nodes"


def report(cluster: Cluster, api: FakeApi | None = None, **changes: Any) -> Preflight:
    return preflight(survey.read(cluster.api()), replace(DECLARED, **changes), api)


def refusal(message: str, status: int = 403) -> FakeApi:
    return FakeApi(verdict=ApiError("POST /api/v1/namespaces/x/pods", status, "Forbidden", message))


def test_each_stack_with_an_exporter_needs_the_runtime_class_of_its_pods() -> None:
    (part,) = report(budgeted()).parts
    assert (part.name, part.state, part.blocks) == ("RuntimeClass nvidia", State.MISSING, True)
    assert "DaemonSet gpu-tenancy-system-nodes/gpu-memory-exporter" in part.text


def test_what_the_api_server_refuses_in_a_dry_run_is_in_the_way() -> None:
    cluster = ready()
    cluster.namespaces[HOME] = {}
    (part,) = report(cluster, refusal("exceeded quota: pods")).parts
    assert (part.state, part.blocks) == (State.MISSING, True)
    assert part.text.endswith("exceeded quota: pods")


def test_before_the_first_rollout_the_pods_are_tried_elsewhere_and_as_what_is_there() -> None:
    api = FakeApi()
    assert report(ready(), api).clear
    ((path, tried),) = api.tried
    assert path == "/api/v1/namespaces/default/pods"
    assert tried["spec"].keys() == {"containers", "hostPID", "runtimeClassName"}
    assert report(ready(), refusal('violates PodSecurity "baseline:latest": host namespaces')).clear


def test_a_dry_run_that_may_not_be_made_is_not_known_and_not_silent() -> None:
    found = report(ready(), refusal('User "x" cannot create resource "pods" in API group ""'))
    assert [(part.state, part.blocks) for part in found.parts] == [(State.UNKNOWN, False)]


def test_openshift_needs_a_constraint_for_each_account() -> None:
    cluster = ready()
    cluster.groups |= {"security.openshift.io": ("v1",)}
    (part,) = report(cluster).parts
    assert not part.blocks  # A grant may be there, and the dry run shows a refusal.
    assert f"add-scc-to-user privileged -z gpu-memory-exporter -n {HOME}" in part.text


def test_the_pods_of_prod_are_those_that_it_starts() -> None:
    made = [*workloads(settings.load_file(ROOT / "Pulumi.prod.yaml"))]
    assert [each["kind"] for each in made] == ["DaemonSet", "DaemonSet", "CronJob"]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("HAMi", {"limits": {GPU: "1", "nvidia.com/gpumem": "3000"}}),
        ("KAI-Scheduler", {"annotations": {"gpu-fraction": "0.5"}, "schedulerName": "kai-scheduler"}),
        ("Volcano", {"limits": {"volcano.sh/vgpu-number": "1"}}),
    ],
)
def test_another_program_that_hands_out_the_same_gpus_is_in_the_way(name: str, given: dict[str, Any]) -> None:
    cluster = ready()
    cluster.pods += of_deployment("theirs", "nvidia", **given)
    assert (name, True) in [(part.name, part.blocks) for part in report(cluster).parts]


def test_a_scheduler_of_pods_without_a_gpu_is_no_problem() -> None:
    cluster = ready()
    cluster.pods.append(pod("batch", "web", schedulerName="volcano"))
    assert report(cluster).clear


def test_quotas_are_compared_with_what_the_plugin_offers_of_each_resource() -> None:
    pool = Pool(name="mig", node_selector={"mig": "yes"}, nodes=1, device_count=8, sharing=Sharing.WHOLE)
    quotas = [
        QueueQuota(queue="q", flavor="f", pool="mig", resource=resource, nominal=nominal)
        for resource, nominal in ((GPU, 8), ("nvidia.com/mig-2g.20gb", 3), ("nvidia.com/mig-1g.10gb", 2))
    ]
    cluster = ready()
    cluster.nodes.append(node("h100", {GPU: "6", "nvidia.com/mig-2g.20gb": "3", "nvidia.com/mig-1g.10gb": "1"}))
    cluster.nodes[-1]["metadata"]["labels"]["mig"] = "yes"
    found = report(cluster, ledger=replace(LEDGER, pools=(*LEDGER.pools, pool), quotas=tuple(quotas))).parts
    assert [part.text.partition(";")[0] for part in found] == [
        "its queues hand out 8 nvidia.com/gpu, and its nodes have 6",
        "its queues hand out 2 nvidia.com/mig-1g.10gb, and its nodes have 1",
    ]
