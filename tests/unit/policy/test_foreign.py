"""Tests that the rules also count requests in charts, custom resources, patches and queues."""

from dataclasses import replace
from typing import Any

import pytest
from pulumi_policy import StackValidationArgs

from policy.pack import stack_policy
from policy.rule import an_object
from tenancy import names
from tenancy.ledger import QueueQuota
from tests.support import graphs
from tests.support.consumers import CONFIG, FULL, gpu, visible, workload
from tests.support.graphs import GPUMEM, Manifest, consumer, judge


def release(namespace: str = "llama-swap", **given: Any) -> Manifest:
    return {"apiVersion": "helm.sh/v3", "kind": "Release", "name": "x", "namespace": namespace, "chart": "x", **given}


def application(helm: dict[str, Any], namespace: str = "llama-swap") -> Manifest:
    spec = {"destination": {"namespace": namespace}, "source": {"helm": helm}}
    return an_object("argoproj.io/v1alpha1", "Application", "x", "argocd", spec=spec)


UNCOUNTED = "it asks for gpumem in a way that is not counted"
RENDERED: dict[str, tuple[Manifest, str]] = {
    "a Release's values": (release(values={"limits": {GPUMEM: 1}}), UNCOUNTED),
    "an Application's values": (application({"valuesObject": {"limits": {GPUMEM: 1}}}), UNCOUNTED),
    "whole devices": (
        release(values=gpu()),
        "container of its pods asks for nvidia.com/gpu, and so this pod reaches a GPU",
    ),
    "the variable": (release(values={"env": {"NVIDIA_VISIBLE_DEVICES": "all"}}), "chooses its device by NVIDIA_V"),
    "privileged": (release(values={"securityContext": {"privileged": True}}), "is privileged and so reaches every"),
    "a Rollout of whole devices": (
        {**workload(main=gpu()), "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"},
        "Rollout llama-swap/x: container of its pods asks for nvidia.com/gpu, and so this pod reaches a GPU",
    ),
    "a patch of a custom resource": (
        an_object("argoproj.io/v1alpha1", "RolloutPatch", "llama-swap", "llama-swap", spec={"replicas": 3}),
        "it changes a Rollout that the graph does not hold; declare the whole object",
    ),
    "a pod's template": (
        {**an_object("v1", "PodTemplate", "x", "llama-swap"), "template": workload(main=gpu())["spec"]["template"]},
        "asks for nvidia.com/gpu, and so this pod reaches a GPU",
    ),
}


@pytest.mark.parametrize("case", RENDERED)
def test_what_is_no_workload_of_its_own_is_counted_or_refused_in_one_line(case: str) -> None:
    manifest, message = RENDERED[case]
    reported = judge({"x": manifest}, CONFIG)
    assert len(reported) == 1, reported
    assert reported[0].startswith("counted: ")
    assert message in reported[0]


POD_WITH_GPU = {"template": workload(main=gpu())["spec"]["template"]}
WAYS: dict[str, Manifest] = {
    "RayService": an_object("ray.io/v1", "RayService", "x", spec={"rayClusterConfig": {"headGroupSpec": POD_WITH_GPU}}),
    "InferenceService": an_object("serving.kserve.io/v1beta1", "InferenceService", "x", spec={"model": gpu()}),
    "SparkApplication": an_object(
        "sparkoperator.k8s.io/v1beta2",
        "SparkApplication",
        "x",
        spec={"executor": {"gpu": {"name": "nvidia.com/gpu", "quantity": 1}}},
    ),
    "VirtualMachine": an_object(
        "kubevirt.io/v1",
        "VirtualMachine",
        "x",
        spec={"devices": {"gpus": [{"deviceName": "nvidia.com/TU104GL_Tesla_T4", "name": "gpu1"}]}},
    ),
}


@pytest.mark.parametrize("kind", WAYS)
def test_a_gpu_of_a_kind_that_runs_pods_without_a_namespace_is_in_default(kind: str) -> None:
    (line,) = judge({"x": WAYS[kind]}, CONFIG)
    assert "namespace default is no tenant's" in line


UNCONCERNED: dict[str, Manifest] = {
    "a chart with a toleration": release(values={"tolerations": [{"key": "nvidia.com/gpu"}]}),
    "a chart on demand": release("tts", values=gpu()),
    "the driver's chart": release("nvidia", values={"privileged": True, **visible()}),
    "text, which is not searched": release(
        values={"raw": f"limits: {{{GPUMEM}: 1}}"}, valueYamlFiles=[{"text": GPUMEM}]
    ),
    "a flavor": graphs.kueue("ResourceFlavor", "x", spec={"tolerations": [{"key": "nvidia.com/gpu"}]}),
    "a patch of what runs no pods": an_object("cert-manager.io/v1", "CertificatePatch", "x", "llama-swap", spec={}),
    "a NodePool": an_object("karpenter.sh/v1", "NodePool", "x", spec={"limits": {"nvidia.com/gpu": 4}}),
    "a ClusterPolicy": an_object("nvidia.com/v1", "ClusterPolicy", "x", spec={"devicePlugin": visible()}),
    "a Rollout without a GPU": an_object(
        "argoproj.io/v1alpha1", "Rollout", "x", "web", spec={"workloadRef": {"kind": "Deployment", "name": "web"}}
    ),
    "an unknown name": application({"releaseName": graphs.UNKNOWN}, "web"),
}


@pytest.mark.parametrize("case", UNCONCERNED)
def test_what_names_a_gpu_and_asks_for_none_passes(case: str) -> None:
    assert judge({"x": UNCONCERNED[case]}, CONFIG) == []


def job(queue: str = "team-a-gpu", **spec: Any) -> Manifest:
    found = workload("team-a", kind="Job", main=gpu())
    found["metadata"]["labels"] = {names.KUEUE_QUEUE_LABEL: queue}
    found["spec"] |= spec
    return found


def test_a_job_is_judged_by_the_queue_that_the_ledger_knows() -> None:
    assert judge({"x": job()}, CONFIG) == []
    assert judge({"x": job(parallelism=2)}, CONFIG) == [
        "queue-coverage: Job team-a/x: asks for 2 nvidia.com/gpu at once (2 x 1), ClusterQueue gpu-cq may hand out 1 "
        "at most: it would never start; lower its parallelism or requests, or raise queues.cluster_queues.gpu-cq.quotas"
    ]
    assert judge({"x": job("team-b-gpu")}, CONFIG) == [
        "queue-coverage: Job team-a/x: there is no LocalQueue team-b-gpu in team-a: it would wait for ever; name one "
        "of team-a-gpu"
    ]


def test_a_second_queue_on_the_flavor_is_counted_with_the_ledgers() -> None:
    second = graphs.cluster_queue("gpu-any")
    second["metadata"]["name"] = "mine"
    assert judge({"x": second}, CONFIG) == [
        "gpu-quota: ClusterQueue mine: with it queues have 2 nvidia.com/gpu of batch, which has 1; lower nominal or "
        "borrowing_limit, or raise pools.batch"
    ]


def test_gpumem_is_handed_out_by_the_ledgers_queues_alone() -> None:
    quota = QueueQuota(queue="mem-cq", flavor="t4-mem", pool="t4", resource=GPUMEM, nominal=500)
    config = {"ledger": replace(FULL, quotas=(*FULL.quotas, quota)).to_data()}
    flavor = {"name": "t4-mem", "resources": [{"name": GPUMEM, "nominalQuota": 500}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPUMEM], "flavors": [flavor]}]}
    own = {"ledger": graphs.ledger_object(replace(FULL, quotas=(*FULL.quotas, quota)))}
    assert not [
        line for line in judge(own | {"x": graphs.kueue("ClusterQueue", "mem-cq", spec=spec)}) if "hands" in line
    ]
    assert judge({"x": graphs.kueue("ClusterQueue", "mine", spec=spec)}, config) == [
        f"gpu-quota: ClusterQueue mine: may hand out 500 {GPUMEM} of flavor t4-mem, the ledger promises it 0; remove "
        "it, or add it to queues.cluster_queues.mine.quotas of the platform's stack"
    ]


def told(program: graphs.Program, config: dict[str, Any] | None, capsys: pytest.CaptureFixture[str]) -> list[str]:
    args = StackValidationArgs(graphs.resources(program), config)
    stack_policy().validate(args, lambda message, urn=None: None)
    return capsys.readouterr().out.splitlines()


def test_the_verdict_says_where_its_ledger_is_from(capsys: pytest.CaptureFixture[str]) -> None:
    by = "gpu-tenancy: judged by this ledger: "
    assert told(graphs.platform(), None, capsys) == [
        f"{by}ConfigMap gpu-tenancy-system/gpu-tenancy-ledger of this program"
    ]
    assert told(consumer(), CONFIG, capsys) == [f"{by}the pack's configuration"]
    output = {**CONFIG, "stack": "gpu-tenancy/prod"}
    assert told(consumer(), output, capsys) == [f"{by}the pack's configuration (output of gpu-tenancy/prod)"]
    assert told(consumer(), None, capsys) == [f"{by}nowhere: there is none"]
    assert told({}, None, capsys) == []


def test_what_another_program_renders_is_said_not_to_be_seen(capsys: pytest.CaptureFixture[str]) -> None:
    program = {str(n): release("web", name=f"r{n}") for n in range(7)} | {"a": application({}, "web")}
    program |= {"k": an_object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "x", "web", spec={"path": "./"})}
    _, line = told(program, CONFIG, capsys)
    assert "warning: what Release 0, Release 1, Release 2, Release 3, Release 4 and 4 more will make is not" in line
    assert judge(program, CONFIG) == []


PATCHES: dict[str, tuple[Manifest, str]] = {
    "a tenant's": (
        an_object("apps/v1", "DeploymentPatch", "immich-server", "immich", spec={"replicas": 3}),
        "it changes a Deployment that the graph does not hold; declare the whole object",
    ),
    "gpumem": (
        an_object("apps/v1", "DeploymentPatch", "x", "kube-system", spec={"template": graphs.pod(500)}),
        "it changes a Deployment that the graph does not hold",
    ),
    "the host": (
        an_object(
            "apps/v1",
            "DeploymentPatch",
            "x",
            "web",
            spec={"template": {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/dev/nvidia0"}}]}}},
        ),
        "volume v mounts the host's /dev/nvidia0, and so this pod reaches a GPU without a budget",
    ),
}


@pytest.mark.parametrize("case", PATCHES)
def test_a_patch_of_what_rules_read_is_refused(case: str) -> None:
    manifest, message = PATCHES[case]
    (line,) = judge({"x": manifest}, CONFIG)
    assert message in line


@pytest.mark.parametrize("namespace", ["kube-system", "web", "immich"])
def test_a_patch_of_what_is_no_tenants_passes_where_it_shows_all_that_is_judged(namespace: str) -> None:
    template = {"spec": {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"a": "b"}}}
    for spec in ({"replicas": 3}, {"template": template}):
        assert judge({"x": an_object("apps/v1", "DeploymentPatch", "coredns", namespace, spec=spec)}, CONFIG) == []
