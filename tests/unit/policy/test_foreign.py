"""Programs of others that would walk round the gate, each by the route that it takes, and those like them that may."""

from dataclasses import replace
from typing import Any

import pytest
from pulumi_policy import StackValidationArgs

from policy.pack import stack_policy
from tenancy import names
from tenancy.ledger import AdmissionTerms, LocalQueue, QueueQuota
from tests.support import graphs
from tests.support.graphs import ADMISSION, GPUMEM, LEDGER, RBAC, Manifest, an_object, consumer, judge, put

# As prod's: placement by device on nodes of one, queues, a class for GPU pods.
FULL = replace(
    LEDGER,
    local_queues=(LocalQueue(name="team-a-gpu", tenant="team-a", queue="gpu-cq"),),
    admission=AdmissionTerms(
        gpu_priority="gpu-workload",
        priorities={"gpu-workload": (), "tier-2-gpu": ("tts",)},
        own=("gpu-tenancy-system",),
        device_classes=("nic.example.com",),
        devices=1,
    ),
)
CONFIG = {"ledger": FULL.to_data()}
LLAMA = "spec.template.spec.containers.0"


def workload(namespace: str = "llama-swap", kind: str = "Deployment", **spec: Any) -> Manifest:
    """A workload without a budget, its pod as given; `main` is its container's."""
    main = {"name": "main", "image": "ghcr.io/a/b:1.2.3", **spec.pop("main", {})}
    template = {"metadata": {"annotations": spec.pop("annotations", {})}, "spec": {"containers": [main], **spec}}
    api_version = "batch/v1" if kind == "Job" else "apps/v1"
    return an_object(api_version, kind, "x", namespace, spec={"template": template})


def gpu(resource: str = "nvidia.com/gpu", amount: object = "1") -> dict[str, Any]:
    return {"resources": {"limits": {resource: amount}}}


def visible(value: str = "all") -> dict[str, Any]:
    return {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]}


def on_host(path: str) -> list[dict[str, Any]]:
    return [{"name": "host", "hostPath": {"path": path}}]


# The workload, and a part of the one line that it gets.
REFUSED: dict[str, tuple[Manifest, str]] = {
    "f2 whole devices": (workload(main=gpu()), "asks for nvidia.com/gpu and so reaches a GPU without a budget; add"),
    "f2 a MIG slice": (workload(main=gpu("nvidia.com/mig-1g.5gb")), "asks for nvidia.com/mig-1g.5gb"),
    "f2 a class as a resource": (
        workload(main=gpu("deviceclass.resource.kubernetes.io/gpu.nvidia.com")),
        "asks for deviceclass.resource.kubernetes.io/gpu.nvidia.com",
    ),
    "f2 in nobody's namespace": (
        workload("web", main=gpu()),
        "it asks for nvidia.com/gpu, and namespace web is no tenant's; add it to tenants of the platform's stack",
    ),
    "f2 in an init container": (
        workload(initContainers=[{"name": "i", "image": "a:1.2.3", **gpu()}]),
        "container i asks for nvidia.com/gpu",
    ),
    "f2 a daemon set": (workload(kind="DaemonSet", main=gpu()), "DaemonSet llama-swap/x: container main asks for"),
    "f3 privileged": (
        workload(main={"securityContext": {"privileged": True}}),
        "container main is privileged and so reaches every device past its budget; remove it: tenants.llama-swap is "
        "held to Pod Security baseline",
    ),
    "f3 the device's file": (workload(volumes=on_host("/dev/nvidia0")), "mounts the host's /dev/nvidia0"),
    "f3 the root": (workload(volumes=on_host("/")), "volume host mounts the host's / and so"),
    "f3 the device's file in nobody's namespace": (
        workload("web", volumes=on_host("/dev/nvidia0")),
        "mounts the host's /dev/nvidia0 and so reaches a GPU without a budget",
    ),
    "f3 the host's processes": (workload(hostPID=True), "hostPID is on and so"),
    "f3 a capability": (
        workload(main={"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}),
        "container main adds SYS_ADMIN",
    ),
    "f3 the variable": (workload(main=visible()), "container main chooses its device by NVIDIA_VISIBLE_DEVICES"),
    "f3 the variable by a prefix": (
        workload(main={"envFrom": [{"prefix": "NVIDIA_", "configMapRef": {"name": "x"}}]}),
        "container main chooses its device by NVIDIA_VISIBLE_DEVICES",
    ),
    "f3 the runtime": (workload(runtimeClassName="nvidia"), "it has runtimeClassName nvidia and so reaches a GPU"),
    "f3 our scheduler": (workload(schedulerName="gpu-tenancy"), "schedulerName gpu-tenancy is for pods with"),
    "f3 a forged device": (
        workload(annotations={"device.viktorbarzin.me/uuid": "GPU-1"}),
        "the annotation device.viktorbarzin.me/uuid is the scheduler's to write; remove it",
    ),
    "f3 CDI": (workload(annotations={"cdi.k8s.io/x": "nvidia.com/gpu=all"}), "cdi.k8s.io/x has a runtime add devices"),
    "f3 NRI": (workload(annotations={"devices.nri.io/container.main": "x"}), "has a runtime add devices; remove it"),
    "f3 the node's class": (
        workload("web", priorityClassName="system-node-critical"),
        "priorityClassName system-node-critical is for what the cluster cannot do without; remove it",
    ),
    "f3 the GPU's class": (
        workload("web", priorityClassName="gpu-workload"),
        "priorityClassName gpu-workload is only for pods that reach a GPU; remove it",
    ),
    "f3 an ephemeral container": (
        workload("web", ephemeralContainers=[{"name": "debug", "image": "a:1.2.3"}]),
        "ephemeralContainers are added to a pod that runs; remove them",
    ),
    "f2 a slice that no quota counts": (
        workload("tts", main=gpu("nvidia.com/mig-1g.5gb")),
        "it asks for nvidia.com/mig-1g.5gb, the quota of tts counts nvidia.com/gpu and nvidia.com/gpu.shared",
    ),
    "f3 an hour to end": (
        workload("tts", main=gpu(), terminationGracePeriodSeconds=3600),
        "terminationGracePeriodSeconds is 3600, a pod with a GPU and no seat ends within 600; lower it",
    ),
    "f6 no queue's label": (
        workload("team-a", kind="Job", main=gpu()),
        "GPUs of team-a are handed out by its queue; make it a Job with the label kueue.x-k8s.io/queue-name",
    ),
    "f6 no Job": (workload("team-a", main=gpu()), "Deployment team-a/x: GPUs of team-a are handed out by its queue"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_pod_that_admission_would_refuse_is_refused_before_in_one_line(case: str) -> None:
    manifest, message = REFUSED[case]
    reported = judge({"x": manifest}, CONFIG)
    assert len(reported) == 1, reported
    assert reported[0].startswith("admission: "), reported
    assert message in reported[0]


ACCEPTED: dict[str, Manifest] = {
    "a pod of nobody's": workload("web", volumes=on_host("/var/log"), main={"securityContext": {"privileged": True}}),
    "without any GPU": workload(main=gpu("nvidia.com/gpu", 0)),
    "on demand": workload("tts", main=gpu(), runtimeClassName="nvidia"),
    "held to nothing": workload(
        "android-emulator", volumes=on_host("/dev"), main={"securityContext": {"privileged": True}}
    ),
    "the driver, which is exempt": workload("nvidia", main=visible(), priorityClassName="system-node-critical"),
    "an agent of kube-system": workload("kube-system", volumes=on_host("/dev"), hostPID=True),
    "no device": workload(main=visible("void")),
    "a file next to the devices": workload("web", volumes=on_host("/dev/fuse")),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_admission_lets_in_passes(case: str) -> None:
    assert judge({"x": ACCEPTED[case]}, CONFIG) == []


def test_the_stacks_own_pods_may_have_the_systems_class() -> None:
    own = workload("gpu-tenancy-system", priorityClassName="system-cluster-critical")
    assert "admission" not in graphs.rules_of(judge(graphs.platform() | {"x": own}))


def test_f3_a_budget_is_no_way_past_the_scheduler() -> None:
    for field, value, message in (
        ("spec.template.spec.nodeName", "k8s-node1", "nodeName k8s-node1 goes past the scheduler that places"),
        ("spec.template.spec.runtimeClassName", "runc", "runtimeClassName runc is not nvidia"),
        (f"{LLAMA}.resources.limits", {GPUMEM: "5000", "nvidia.com/gpu": "2"}, "it asks for 2 whole devices"),
        (f"{LLAMA}.env", visible()["env"], "chooses its device by NVIDIA_VISIBLE_DEVICES"),
    ):
        program = consumer()
        put(program["llama-swap"], field, value)
        (line,) = judge(program, CONFIG)
        assert message in line


def test_f3_a_pod_smaller_than_its_seat_would_be_refused_by_admission() -> None:
    assert judge(consumer(4000), CONFIG) == [
        "seats: Deployment llama-swap/llama-swap: a pod asks for 4000 MiB on 1 devices, its seat has 5000 on 1: "
        "admission lets in pods as large as a seat alone; ask for 5000 on each device, or change residents.llama-swap"
    ]


def test_f3_what_is_claimed_of_another_driver_is_no_budgets() -> None:
    def claim(device_class: str) -> Manifest:
        spec = {"spec": {"devices": {"requests": [{"name": "x", "exactly": {"deviceClassName": device_class}}]}}}
        return an_object("resource.k8s.io/v1", "ResourceClaimTemplate", "x", "llama-swap", spec=spec)

    assert judge({"x": claim("gpu.nvidia.com")}, CONFIG) == [
        "claims: ResourceClaimTemplate llama-swap/x: claims gpu.nvidia.com beside the budgets; claim a seat, or list "
        "the class under admission.device_classes of the platform's stack if it gives no GPU"
    ]
    assert judge({"x": claim("nic.example.com")}, CONFIG) == []


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_f3_an_environment_that_chooses_devices_is_refused_where_the_plugin_gives_them(kind: str) -> None:
    def environment(namespace: str) -> list[str]:
        data = {"NVIDIA_VISIBLE_DEVICES": "all"}
        return judge({"x": an_object("v1", kind, "x", namespace, data=data)}, CONFIG)

    assert environment("team-a") == [
        f"admission: {kind} team-a/x: the key NVIDIA_VISIBLE_DEVICES would choose devices by envFrom; remove it"
    ]
    assert environment("immich") == environment("nvidia") == []
    assert judge({"x": an_object("v1", kind, "x", "team-a", data=graphs.UNKNOWN)}, CONFIG) == []


def test_without_a_ledger_nothing_proves_a_gpu() -> None:
    assert judge({"x": workload(main=gpu())}) == [
        "ledger: Deployment llama-swap/x: cannot be proven: no ledger; write `pulumi stack output --json ledger` of "
        "the platform to a file and pass it as --policy-pack-config"
    ]


def release(namespace: str = "llama-swap", **given: Any) -> Manifest:
    return {"apiVersion": "helm.sh/v3", "kind": "Release", "name": "x", "namespace": namespace, "chart": "x", **given}


def application(helm: dict[str, Any], namespace: str = "llama-swap") -> Manifest:
    spec = {"destination": {"namespace": namespace}, "source": {"helm": helm}}
    return an_object("argoproj.io/v1alpha1", "Application", "x", "argocd", spec=spec)


TEXT = f"resources:\n  limits:\n    {GPUMEM}: 5000\n"
UNCOUNTED = "it asks for gpumem in a way that is not counted"
RENDERED: dict[str, tuple[Manifest, str]] = {
    "f4 a Release's values": (release(values={"limits": {GPUMEM: 1}}), UNCOUNTED),
    "f4 a Release's values as text": (release(valueYamlFiles=[{"text": TEXT}]), UNCOUNTED),
    "f4 an Application's values as text": (application({"values": TEXT}), UNCOUNTED),
    "f4 an Application's values": (application({"valuesObject": {"limits": {GPUMEM: 1}}}), UNCOUNTED),
    "f4 an Application's parameters": (
        application({"parameters": [{"name": "resources.limits.viktorbarzin\\.me/gpumem", "value": "1"}]}),
        UNCOUNTED,
    ),
    "f4 a template": (application({"values": f"{{{{ if x }}}}\n{TEXT}"}), UNCOUNTED),
    "f4 a HelmRelease": (
        an_object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "x", "llama-swap", spec={"values": {"l": {GPUMEM: 1}}}),
        UNCOUNTED,
    ),
    "f4 whole devices": (release(values=gpu()), "container of its pods asks for nvidia.com/gpu and so reaches a GPU"),
    "f4 whole devices as text": (
        application({"values": "resources: {limits: {nvidia.com/gpu: 1}}"}),
        "asks for nvidia.com/gpu and so reaches a GPU",
    ),
    "f4 the variable": (release(values={"env": {"NVIDIA_VISIBLE_DEVICES": "all"}}), "chooses its device by NVIDIA_V"),
    "f4 privileged": (release(values={"securityContext": {"privileged": True}}), "is privileged and so reaches every"),
    "f5 a Rollout of whole devices": (
        {**workload(main=gpu()), "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"},
        "Rollout llama-swap/x: container of its pods asks for nvidia.com/gpu and so reaches a GPU",
    ),
    "f5 a patch of a custom resource": (
        an_object("argoproj.io/v1alpha1", "RolloutPatch", "x", "llama-swap", spec={"replicas": 3}),
        "it changes a Rollout that the graph does not hold; declare the whole object",
    ),
    "f5 a patch of a queue": (
        an_object(names.KUEUE_API, "LocalQueuePatch", "x", "team-a", spec={}),
        "it changes a LocalQueue that the graph does not hold",
    ),
    "f5 a reference to elsewhere": (
        an_object(
            "argoproj.io/v1alpha1",
            "Rollout",
            "x",
            "llama-swap",
            spec={"workloadRef": {"kind": "Deployment", "name": "llama-swap"}},
        ),
        "it runs the pods of Deployment llama-swap/llama-swap (workloadRef), which are not counted",
    ),
    "f5 a pod's template": (
        {**an_object("v1", "PodTemplate", "x", "llama-swap"), "template": workload(main=gpu())["spec"]["template"]},
        "asks for nvidia.com/gpu and so reaches a GPU",
    ),
}


@pytest.mark.parametrize("case", RENDERED)
def test_what_is_no_workload_of_its_own_is_counted_or_refused_in_one_line(case: str) -> None:
    manifest, message = RENDERED[case]
    reported = judge({"x": manifest}, CONFIG)
    assert len(reported) == 1, reported
    assert reported[0].startswith("counted: ")
    assert message in reported[0]


UNCONCERNED: dict[str, Manifest] = {
    "a chart with a toleration": release(values={"tolerations": [{"key": "nvidia.com/gpu"}]}),
    "a chart for other nodes": release(values={"nodeSelector": {"nvidia.com/gpu.present": "true"}}),
    "a chart on demand": release("tts", values=gpu()),
    "the driver's chart": release("nvidia", values={"privileged": True, **visible()}),
    "a rule about gpumem": an_object(
        "monitoring.coreos.com/v1", "PrometheusRule", "x", "web", spec={"groups": [{"a": f"no {GPUMEM} is left: act"}]}
    ),
    "a flavor": graphs.kueue("ResourceFlavor", "x", spec={"tolerations": [{"key": "nvidia.com/gpu"}]}),
    "a patch of nobody's": an_object("cert-manager.io/v1", "CertificatePatch", "x", "web", spec={}),
    "a Rollout without a GPU": an_object(
        "argoproj.io/v1alpha1", "Rollout", "x", "web", spec={"workloadRef": {"kind": "Deployment", "name": "web"}}
    ),
    "an unknown name": application({"releaseName": graphs.UNKNOWN}, "web"),
}


@pytest.mark.parametrize("case", UNCONCERNED)
def test_what_names_a_gpu_and_asks_for_none_passes(case: str) -> None:
    assert judge({"x": UNCONCERNED[case]}, CONFIG) == []


def test_f5_a_rollout_that_runs_a_workload_of_the_program_by_reference_is_not_counted() -> None:
    reference = {"workloadRef": {"kind": "Deployment", "name": "llama-swap"}, "replicas": 5}
    rollout = an_object("argoproj.io/v1alpha1", "Rollout", "x", "llama-swap", spec=reference)
    (line,) = judge(consumer() | {"x": rollout}, CONFIG)
    assert "it runs the pods of Deployment llama-swap/llama-swap (workloadRef)" in line


@pytest.mark.parametrize("version", ["extensions/v1beta1", "apps/v1beta2"])
def test_f5_a_version_that_was_removed_is_refused(version: str) -> None:
    assert judge({"x": workload("web") | {"apiVersion": version}}, CONFIG) == [
        f"admission: Deployment web/x: {version} was removed from Kubernetes; write apps/v1"
    ]


def job(queue: str = "team-a-gpu", **spec: Any) -> Manifest:
    found = workload("team-a", kind="Job", main=gpu())
    found["metadata"]["labels"] = {names.KUEUE_QUEUE_LABEL: queue}
    found["spec"] |= spec
    return found


def test_f6_a_job_is_judged_by_the_queue_that_the_ledger_knows() -> None:
    assert judge({"x": job()}, CONFIG) == []
    assert judge({"x": job(parallelism=2)}, CONFIG) == [
        "queue-coverage: Job team-a/x: asks for 2 nvidia.com/gpu at once (2 x 1), ClusterQueue gpu-cq may hand out 1 "
        "at most: it would never start; lower its parallelism or requests, or raise queues.cluster_queues.gpu-cq.quotas"
    ]
    assert judge({"x": job("team-b-gpu")}, CONFIG) == [
        "queue-coverage: Job team-a/x: there is no LocalQueue team-b-gpu in team-a: it would wait for ever; name one "
        "of team-a-gpu"
    ]


def test_f6_a_second_queue_on_the_flavor_is_counted_with_the_ledgers() -> None:
    second = graphs.cluster_queue("gpu-any")
    second["metadata"]["name"] = "mine"
    assert judge({"x": second}, CONFIG) == [
        "gpu-quota: ClusterQueue mine: with it queues have 2 nvidia.com/gpu of batch, which has 1; lower nominal or "
        "borrowing_limit, or raise pools.batch"
    ]


def test_f6_gpumem_is_handed_out_by_the_ledgers_queues_alone() -> None:
    quota = QueueQuota(queue="mem-cq", flavor="t4-mem", pool="t4", resource=GPUMEM, nominal=500)
    config = {"ledger": replace(FULL, quotas=(*FULL.quotas, quota)).to_data()}
    flavor = {"name": "t4-mem", "resources": [{"name": GPUMEM, "nominalQuota": 500}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPUMEM], "flavors": [flavor]}]}
    own = {"ledger": graphs.ledger_object(replace(FULL, quotas=(*FULL.quotas, quota)))}
    assert not [
        line for line in judge(own | {"x": graphs.kueue("ClusterQueue", "mem-cq", spec=spec)}) if "hands" in line
    ]
    assert judge({"x": graphs.kueue("ClusterQueue", "mine", spec=spec)}, config) == [
        f"gpu-quota: ClusterQueue mine: hands out 500 {GPUMEM} of flavor t4-mem, the ledger promises it 0; lower "
        "nominalQuota or raise queues.cluster_queues.mine.quotas of the platform's stack"
    ]


def cluster_role(resource: str, verb: str, group: str = "") -> Manifest:
    rules = [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}]
    return an_object(f"{RBAC}/v1", "ClusterRole", "x", rules=rules)


def bound_to(namespace: str) -> Manifest:
    ref, subject = {"kind": "ClusterRole", "name": "x"}, {"kind": "ServiceAccount", "name": "x", "namespace": namespace}
    return an_object(f"{RBAC}/v1", "ClusterRoleBinding", "x", roleRef=ref, subjects=[subject])


@pytest.mark.parametrize(
    ("resource", "verb", "group"),
    [
        ("nodes/status", "patch", ""),
        ("pods/binding", "create", ""),
        ("resourceslices", "update", "resource.k8s.io"),
        ("validatingadmissionpolicybindings", "patch", "admissionregistration.k8s.io"),
        ("mutatingadmissionpolicies", "delete", "admissionregistration.k8s.io"),
    ],
)
def test_f7_a_right_that_goes_past_every_budget_is_refused(resource: str, verb: str, group: str) -> None:
    (line,) = judge({"x": cluster_role(resource, verb, group), "y": bound_to("web")}, CONFIG)
    assert f"rbac: ClusterRole x: lets web/x {verb} {resource}, and so past every budget; take it away" in line


def test_f7_the_driver_and_the_system_may_have_it_and_everybody_may_read() -> None:
    for namespace in ("nvidia", "kube-system"):
        assert judge({"x": cluster_role("nodes/status", "patch"), "y": bound_to(namespace)}, CONFIG) == []
    assert judge({"x": cluster_role("nodes/status", "get"), "y": bound_to("web")}, CONFIG) == []


def test_f7_our_policies_are_the_platforms_and_deny() -> None:
    audit = {"policyName": names.GPU_BUDGET, "validationActions": ["Audit"]}
    binding = an_object(ADMISSION, "ValidatingAdmissionPolicyBinding", names.GPU_BUDGET, spec=audit)
    for kind in ("", "Patch"):
        changed = {**binding, "kind": f"{binding['kind']}{kind}"}
        assert judge({"x": changed}, CONFIG) == [
            f"rbac: {changed['kind']} {names.GPU_BUDGET}: {names.GPU_BUDGET} is the platform's own, which this program "
            "would change; remove it"
        ]
    assert judge(graphs.platform() | {"x": binding}) == [
        f"rbac: {binding['kind']} {names.GPU_BUDGET}: validationActions is ['Audit'], so that nothing is refused; "
        "write Deny"
    ]
    theirs = an_object(ADMISSION, "ValidatingAdmissionPolicyBinding", "images", spec=audit)
    assert judge({"x": theirs}, CONFIG) == []


def told(program: graphs.Program, config: dict[str, Any] | None, capsys: pytest.CaptureFixture[str]) -> list[str]:
    args = StackValidationArgs(graphs.resources(program), config)
    stack_policy().validate(args, lambda message, urn=None: None)
    return capsys.readouterr().out.splitlines()


def test_f1_the_verdict_says_where_its_ledger_is_from(capsys: pytest.CaptureFixture[str]) -> None:
    by = "gpu-tenancy: judged by this ledger: "
    assert told(graphs.platform(), None, capsys) == [
        f"{by}ConfigMap gpu-tenancy-system/gpu-tenancy-ledger of this program"
    ]
    assert told(consumer(), CONFIG, capsys) == [f"{by}the pack's configuration"]
    output = {**CONFIG, "stack": "gpu-tenancy/prod"}
    assert told(consumer(), output, capsys) == [f"{by}the pack's configuration (output of gpu-tenancy/prod)"]
    assert told(consumer(), None, capsys) == [f"{by}nowhere: there is none"]
    assert told({}, None, capsys) == []


def test_f4_what_another_program_renders_is_said_not_to_be_seen(capsys: pytest.CaptureFixture[str]) -> None:
    program = {str(n): release("web", name=f"r{n}") for n in range(7)} | {"a": application({}, "web")}
    program |= {"k": an_object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "x", "web", spec={"path": "./"})}
    _, line = told(program, CONFIG, capsys)
    assert "warning: what Release 0, Release 1, Release 2, Release 3, Release 4 and 4 more will make is not" in line
    assert judge(program, CONFIG) == []


def test_one_unpinned_image_is_one_line_and_names_the_agents_key() -> None:
    program = graphs.platform()
    for name in ("reconcile", "watchdog", "gate"):
        put(program[name], "spec.jobTemplate.spec.template.spec.containers.0.image", "python:latest")
    assert judge(program) == [
        "images: cluster.agent_image: image python:latest is not pinned; write a digest (@sha256:…) or a full version "
        "(:1.2.3); used by CronJob gpu-tenancy-system/gpu-demand-gate, CronJob gpu-tenancy-system/gpu-vram-watchdog, "
        "CronJob gpu-tenancy-system/gpumem-reconcile"
    ]


def test_f9_a_chart_that_was_rendered_passes_though_its_new_objects_have_no_ids() -> None:
    def chart(**given: Any) -> list[str]:
        return judge({"x": {"apiVersion": "helm.sh/v3", "kind": "Chart", **given}}, CONFIG)

    assert chart(resources={"v1/ConfigMap:x": {"urn": "x", "id": graphs.UNKNOWN}}) == []
    for unknown in ({"resources": graphs.UNKNOWN}, {"values": {"a": graphs.UNKNOWN}}):
        assert "cannot be proven: the objects it declares are not in the graph" in chart(**unknown)[0]


@pytest.mark.parametrize(
    "text",
    [
        "nvidia.com/x: 1\na: 2026-13-45",
        f"nvidia.com/x: {'9' * 5000}",
        f"nvidia.com/x: {'[' * 2000}",
        "nvidia.com/x: &a [*a]",
        "\n".join(["nvidia.com/x: &a0 [1]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))]),
    ],
    ids=["a date", "a number", "depth", "itself", "a bomb"],
)
def test_text_that_cannot_be_read_as_yaml_is_read_by_its_lines(text: str) -> None:
    (line,) = judge({"x": release(values={"raw": text})}, CONFIG)
    assert "nvidia.com/x" in line


@pytest.mark.parametrize(
    "found",
    [
        an_object("karpenter.sh/v1", "NodePool", "x", spec={"limits": {"nvidia.com/gpu": 4}}),
        an_object("nvidia.com/v1", "ClusterPolicy", "x", spec={"devicePlugin": visible()}),
        an_object("cert-manager.io/v1", "CertificatePatch", "x", "llama-swap", spec={"dnsNames": ["a.example.com"]}),
    ],
    ids=lambda found: str(found["kind"]),
)
def test_what_runs_no_pods_of_a_namespace_passes(found: Manifest) -> None:
    assert judge({"x": found}, CONFIG) == []


def test_a_kind_of_somebody_elses_is_not_the_apis_for_the_end_of_its_group() -> None:
    spec = {"driver": {"limits": {"nvidia.com/gpu": "1"}}}
    assert judge({"x": an_object("sparkoperator.k8s.io/v1", "SparkApplication", "x", "llama-swap", spec=spec)}, CONFIG)


@pytest.mark.parametrize("role", ["system:node", "system:kube-scheduler", "system:controller:node-controller"])
def test_a_role_of_the_systems_is_for_the_system(role: str) -> None:
    binding = bound_to("web")
    binding["roleRef"]["name"] = role
    (line,) = judge({"x": binding}, CONFIG)
    assert f"binds {role}, whose rights reach past every budget" in line


def test_where_there_is_no_ledger_nobody_asks_what_reaches_past_it() -> None:
    assert judge({"x": cluster_role("nodes/status", "patch"), "y": bound_to("web")}) == []
