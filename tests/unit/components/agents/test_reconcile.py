from dataclasses import replace
from itertools import pairwise
from typing import Any

import pulumi
import pytest

from components.agents.reconcile import Capacity, CapacityArgs
from components.base.manifest import register
from components.base.zipapp import Zipapp
from tenancy.ledger import Seat
from tests.support.engine import Graph, build, names
from tests.support.given import CLUSTER, CODE, LEDGER, declared

FINALIZER = "example.com/advertised-capacity"


def args(**changes: Any) -> CapacityArgs:
    return replace(CapacityArgs(cluster=CLUSTER, code=CODE, ledger=LEDGER, reconcile=True), **changes)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return declared(Capacity, "capacity", args())


def job_name(**changes: Any) -> str:
    name: str = declared(Capacity, "capacity", args(**changes)).one("Job").inputs["metadata"]["name"]
    return name


def test_the_ledger_stays_until_its_finalizer_is_taken_and_a_stuck_one_ends_with_a_message(graph: Graph) -> None:
    ledger = graph.one("ConfigMap", "capacity-ledger")
    assert ledger.inputs["metadata"]["finalizers"] == [FINALIZER]
    assert ledger.request.customTimeouts.delete == "5m"


def test_guards_come_first_then_the_cron_job_then_the_ledger_then_the_job(graph: Graph) -> None:
    order = [graph.one("CronJob"), graph.one("ConfigMap", "capacity-ledger"), graph.one("Job")]
    for earlier, later in pairwise(order):
        assert graph.depends_on(later, earlier)
        assert not graph.depends_on(earlier, later)
    guards = graph.all("ValidatingAdmissionPolicyBinding") + graph.all("ClusterRoleBinding") + graph.all("RoleBinding")
    assert len(guards) == 5
    assert all(graph.depends_on(graph.one("CronJob"), guard) for guard in guards)
    for binding in graph.all("ValidatingAdmissionPolicyBinding"):
        policy = graph.one("ValidatingAdmissionPolicy", binding.name.removesuffix("-binding"))
        assert graph.depends_on(binding, policy)
        assert binding.inputs["spec"]["policyName"] == policy.inputs["metadata"]["name"]


def test_what_takes_its_output_comes_after_the_job() -> None:
    def program() -> None:
        capacity = Capacity("capacity", args())
        data = capacity.advertised.apply(lambda pools: {pool: str(mib) for pool, mib in pools.items()})
        consumer = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "consumer"}, "data": data}
        register(consumer, "consumer", parent=pulumi.ComponentResource("test:index:Tenant", "tenant"))

    graph = build(program)
    consumer = graph.one("ConfigMap", "consumer")
    assert graph.depends_on(consumer, graph.one("Job"))
    assert consumer.inputs["data"] == {"t4": "14000"}


def test_the_job_is_awaited_retried_and_replaced_when_it_failed(graph: Graph) -> None:
    """The wait is long, because the cluster autoscaler may need many minutes for a node."""
    job = graph.one("Job")
    assert (job.inputs["spec"]["activeDeadlineSeconds"], job.inputs["spec"]["backoffLimit"]) == (1800, 2)
    assert "ttlSecondsAfterFinished" not in job.inputs["spec"]
    assert job.inputs["metadata"]["annotations"]["pulumi.com/replaceUnready"] == "true"
    assert job.request.customTimeouts.create == "30m"
    assert list(job.request.replaceOnChanges) == ["metadata.name"]
    assert job.request.deleteBeforeReplace


def test_the_job_runs_again_when_the_ledger_the_code_or_the_image_changes_and_only_then() -> None:
    raised = replace(LEDGER, seats=(Seat(name="chat", tenant="chat", pool="t4", gpumem_mib=6000),))
    image = CLUSTER.model_copy(update={"agent_image": "docker.io/library/python:3.14.0-slim-bookworm"})
    jobs = [
        job_name(),
        job_name(ledger=raised),
        job_name(code=Zipapp(b"other", digest="other")),
        job_name(cluster=image),
    ]
    assert len(set(jobs)) == len(jobs)
    assert job_name() == jobs[0]
    assert all(len(name) <= 63 and name.startswith("gpumem-reconcile-") for name in jobs)


def test_reconcile_left_out_replaces_the_ledger_too() -> None:
    ledger = declared(Capacity, "capacity", args(reconcile=False)).one("ConfigMap")
    assert list(ledger.request.replaceOnChanges) == ["metadata.finalizers"]
    assert ledger.request.deleteBeforeReplace


def test_without_reconcile_there_is_the_ledger_with_its_policy_and_nothing_holds_it() -> None:
    graph = declared(Capacity, "capacity", args(reconcile=False))
    policy = {"capacity-ledger-writes", "capacity-ledger-writes-binding"}
    assert names(graph.resources) == {"capacity", "capacity-ledger", *policy}
    assert "finalizers" not in graph.one("ConfigMap", "capacity-ledger").inputs["metadata"]
