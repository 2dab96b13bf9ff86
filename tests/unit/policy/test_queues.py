"""Tests that the rules refuse Jobs that Kueue would never admit, and too large quotas."""

from dataclasses import replace

from policy.rule import an_object
from tenancy import names
from tenancy.ledger import QueueQuota
from tests.support import graphs
from tests.support.graphs import LEDGER, judge, platform, pool, put

LLAMA = "spec.template.spec.containers.0"


def wide_job(**spec: object) -> graphs.Manifest:
    job = graphs.platform()["job"]
    job["spec"].update(spec)
    return job


WAITS = "it would never start; lower its parallelism or requests, or raise queues.cluster_queues.gpu-cq.quotas"


def test_a_job_that_its_queue_could_never_admit_is_refused() -> None:
    program = platform() | {"job": wide_job(parallelism=2)}
    assert judge(program) == [
        "queue-coverage: Job team-a/train: asks for 2 nvidia.com/gpu at once (2 x 1), ClusterQueue gpu-cq may hand out "
        f"1 at most: {WAITS}"
    ]
    put(program["job"], "spec.completions", 1)
    assert judge(program) == []
    put(program["job"], f"{LLAMA}.resources", {"limits": {names.GPU: 2}})
    assert judge(program) == [
        "queue-coverage: Job team-a/train: asks for 2 nvidia.com/gpu at once (1 x 2), ClusterQueue gpu-cq may hand out "
        f"1 at most: {WAITS}"
    ]


def test_a_cron_jobs_jobs_are_admitted_one_by_one() -> None:
    job = wide_job(parallelism=2)
    template = {"metadata": {"labels": job["metadata"]["labels"]}, "spec": job["spec"]}
    program = platform() | {"job": an_object("batch/v1", "CronJob", "train", "team-a", spec={"jobTemplate": template})}
    assert graphs.rules_of(judge(program)) == {"queue-coverage"}
    put(program["job"], "spec.jobTemplate.spec.parallelism", 1)
    assert judge(program) == []


def test_a_job_that_may_start_with_fewer_pods_is_admitted_with_them() -> None:
    job = wide_job(parallelism=2)
    job["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    assert judge(platform() | {"job": job}) == []


def test_a_job_may_use_what_its_queue_borrows_but_of_one_flavor_alone() -> None:
    def said(*quotas: QueueQuota) -> list[str]:
        return judge(platform(replace(pool("batch", nodes=2), quotas=quotas)) | {"job": wide_job(parallelism=2)})

    own = LEDGER.quotas[0]
    assert said(replace(own, borrowing=1)) == []
    assert graphs.rules_of(said(own)) == {"queue-coverage"}
    assert graphs.rules_of(said(own, replace(own, flavor="more"))) == {"queue-coverage"}


def test_a_queue_may_borrow_what_another_has() -> None:
    quotas = (replace(LEDGER.quotas[0], borrowing=1), replace(LEDGER.quotas[0], queue="other", borrowing=1))
    ledger = replace(pool("batch", nodes=2), quotas=quotas)
    assert ledger.quota_gpus("batch") == 2
    program = platform(ledger)
    for key, name in (("cluster queue", "gpu-cq"), ("other", "other")):
        program[key] = graphs.cluster_queue("gpu-any")
        program[key]["metadata"]["name"] = name
        put(program[key], "spec.cohortName", "gpus")
        put(program[key], "spec.resourceGroups.0.flavors.0.resources.0.borrowingLimit", 1)
    assert judge(program) == []


def test_falling_back_across_flavors_needs_more_than_one_gpu() -> None:
    quotas = tuple(replace(LEDGER.quotas[0], flavor=flavor, nominal=0) for flavor in ("l4", "t4"))
    ledger = replace(LEDGER, quotas=quotas)
    flavors = {name: graphs.kueue("ResourceFlavor", name, spec={}) for name in ("l4", "t4")}
    program = platform(ledger) | flavors | {"cluster queue": graphs.cluster_queue("l4", "t4", nominal="0")}
    del program["job"]
    assert judge(program) == [
        "flavors: ClusterQueue gpu-cq: falls back across l4, t4, but there is 1 GPU behind them: each flavor's quota "
        "would admit a Job for it; keep one flavor"
    ]
    program["ledger"] = graphs.ledger_object(replace(pool("batch", nodes=2), quotas=quotas))
    assert judge(program) == []


def test_a_pool_that_mig_divides_is_handed_out_by_its_slices_alone() -> None:
    slices = tuple(replace(quota, resource="nvidia.com/mig-1g.10gb", nominal=7) for quota in LEDGER.quotas)
    assert judge({}, {"ledger": replace(LEDGER, quotas=slices).to_data()}) == []
