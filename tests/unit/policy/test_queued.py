"""Tests how the policy pack judges each kind of work that Kueue queues."""

import io
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

import pytest

from policy.rule import an_object
from tenancy.choices import Sharing
from tenancy.frameworks import FrameworkName
from tenancy.ledger import Ledger, LocalQueue
from tenancy.names import KUEUE_PRIORITY_LABEL, KUEUE_QUEUE_LABEL
from tests.support.consumers import CONFIG, FULL
from tests.support.graphs import Manifest, judge, judged
from tests.support.queued_work import work

LEDGER = replace(FULL, frameworks=tuple(FrameworkName), workload_priorities={"gpu-batch": 100, "gpu-urgent": 1000})
WIDE = [each for each in FrameworkName if each not in (FrameworkName.POD, FrameworkName.DEPLOYMENT)]


@pytest.mark.parametrize("framework", FrameworkName)
def test_a_queued_kind_within_its_quota_passes(framework: FrameworkName) -> None:
    quotas = tuple(replace(quota, nominal=2) for quota in LEDGER.quotas)
    pools = tuple(replace(pool, nodes=2) for pool in LEDGER.pools)
    assert _lines(work(framework), replace(LEDGER, quotas=quotas, pools=pools)) == []


@pytest.mark.parametrize("framework", WIDE)
def test_work_that_asks_for_more_than_its_queue_has_would_never_start(framework: FrameworkName) -> None:
    (line,) = _lines(work(framework))
    assert "asks for 2 nvidia.com/gpu at once" in line
    assert "may hand out 1 at most: it would never start" in line


@pytest.mark.parametrize("framework", FrameworkName)
def test_gpu_work_without_a_queue_is_refused(framework: FrameworkName) -> None:
    lines = _lines(work(framework, queue=None))
    assert lines
    assert all("GPUs of this namespace are handed out by its queue" in line for line in lines)


@pytest.mark.parametrize("framework", FrameworkName)
def test_other_work_without_a_queue_gets_a_warning_or_uses_the_default(framework: FrameworkName) -> None:
    plain = work(framework, queue=None, gpus=0)
    if framework is FrameworkName.TRAIN_JOB:
        plain["spec"]["trainer"]["resourcesPerNode"] = {"limits": {"cpu": "1"}}
    assert _lines(plain) == []
    assert "names no queue, and Kueue holds back all work of team-a" in _told(plain)
    default = LocalQueue(name="default", tenant="team-a", queue="gpu-cq")
    assert "names no queue" not in _told(plain, replace(LEDGER, local_queues=(*LEDGER.local_queues, default)))


@pytest.mark.parametrize(
    ("kind", "where", "home"),
    [
        (FrameworkName.JOBSET, ("spec", "replicatedJobs", 0, "template"), "metadata.labels of the JobSet"),
        (FrameworkName.JOB, ("spec", "template"), "metadata.labels of the Job"),
    ],
)
@pytest.mark.parametrize("gpus", [0, 1])
def test_a_queues_label_in_the_wrong_place_is_found(
    kind: FrameworkName, where: tuple[str | int, ...], home: str, gpus: int
) -> None:
    """Before the fix, the finding asked for a label that the object seemed to have."""
    manifest = work(kind, queue=None, gpus=gpus)
    holder: Any = manifest
    for part in where:
        holder = holder[part]
    holder.setdefault("metadata", {}).setdefault("labels", {})[KUEUE_QUEUE_LABEL] = "team-a-gpu"
    path = ".".join(map(str, (*where, "metadata.labels")))
    lines = _lines(manifest) if gpus else _told(manifest).splitlines()[1:]
    assert lines
    assert all(line.endswith(f"move the label {KUEUE_QUEUE_LABEL} from {path} to {home}") for line in lines), lines


def test_the_label_of_a_cron_job_is_for_its_jobs() -> None:
    job = work(FrameworkName.JOB, queue=None, gpus=1)
    cron = an_object("batch/v1", "CronJob", "nightly", "team-a", spec={"jobTemplate": {"spec": job["spec"]}})
    cron["metadata"]["labels"] = {KUEUE_QUEUE_LABEL: "team-a-gpu"}
    assert any(
        line.endswith("from metadata.labels to spec.jobTemplate.metadata.labels of the CronJob")
        for line in _lines(cron)
    )


def test_whole_gpus_of_a_queue_need_a_pool_of_whole_devices() -> None:
    """Before the fix, the finding named only gpumem."""
    pools = tuple(replace(pool, sharing=Sharing.MEMORY) for pool in LEDGER.pools)
    lines = _lines(work(FrameworkName.JOB), replace(LEDGER, pools=pools))
    assert any("or hand out whole devices: pools.batch.sharing: whole" in line for line in lines), lines


def test_a_kind_that_kueue_does_not_queue_is_refused() -> None:
    lines = judge({"x": work(FrameworkName.JOBSET)}, CONFIG)
    assert any("make it a Job and give it the label" in line for line in lines), lines


def test_work_names_a_priority_class_of_the_platform() -> None:
    job = work(FrameworkName.POD)
    job["metadata"]["labels"][KUEUE_PRIORITY_LABEL] = "gpu-urgnet"
    (line,) = _lines(job)
    assert line.endswith(
        "there is no WorkloadPriorityClass gpu-urgnet; name gpu-batch or gpu-urgent, or add "
        "queues.workload_priorities.gpu-urgnet"
    )
    job["metadata"]["labels"][KUEUE_PRIORITY_LABEL] = "gpu-urgent"
    assert _lines(job) == []


def test_a_priority_class_is_named_by_its_tenants_only() -> None:
    job = work(FrameworkName.POD)
    job["metadata"]["labels"][KUEUE_PRIORITY_LABEL] = "gpu-urgent"
    assert _lines(job, replace(LEDGER, priority_tenants={"gpu-urgent": ("team-a", "team-b")})) == []
    (line,) = _lines(job, replace(LEDGER, priority_tenants={"gpu-urgent": ("team-b",)}))
    assert line.endswith(
        "WorkloadPriorityClass gpu-urgent is for team-b; name gpu-batch, or add team-a to "
        "queues.workload_priorities.gpu-urgent.tenants of the platform's stack"
    )


def test_nobody_changes_the_order_of_the_platforms_queues() -> None:
    assert "is the platform's own" in _lines(_priority("gpu-batch", 9_999_999))[0]
    assert "value 1000000 is above 1000, the platform's highest" in _lines(_priority("mine", 1_000_000))[0]
    assert _lines(_priority("mine", 1000)) == []
    # A ledger of version 0.1.0 lists no WorkloadPriorityClasses.
    assert _lines(_priority("mine", 1_000_000), replace(FULL, workload_priorities={})) == []


def _priority(name: str, value: int) -> Manifest:
    return an_object("kueue.x-k8s.io/v1beta2", "WorkloadPriorityClass", name, value=value)


def _told(manifest: Manifest, ledger: Ledger = LEDGER) -> str:
    with redirect_stdout(io.StringIO()) as said:
        assert judged({"x": manifest}, {"ledger": ledger.to_data()}) == []
    return said.getvalue()


def _lines(manifest: Manifest, ledger: Ledger = LEDGER) -> list[str]:
    return judge({"x": manifest}, {"ledger": ledger.to_data()})
