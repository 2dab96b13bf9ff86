"""Every rule: a program that breaks only it, with what the operator reads; and the program that breaks none."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from policy.rules import RULES
from tenancy import names
from tenancy.ledger import Ledger, OnDemand, Pool, QueueQuota, Seat
from tests.support import graphs
from tests.support.graphs import BATCH, GPUMEM, LEDGER, SYSTEM, Program, an_object, judge, platform, pool, put, seat
from tests.unit.policy import test_host_memory

Mistake = Callable[[Program], object]

LLAMA = "spec.template.spec.containers.0"
JOB = "spec.jobTemplate.spec"
AGENT = f"{JOB}.template.spec"
GATES = f"{AGENT}.containers.0.env.3.value"

# What the change in the ledger is: rule, ledger, a part of the message.
IN_THE_LEDGER: dict[str, tuple[str, Ledger, str]] = {
    "a budget too many": (
        "budgets",
        seat("llama-swap", gpumem_mib=7000),
        "t4: 15300 MiB promised, 14000 advertised (1300 over): llama-swap 7000, immich-ml 3000, …; "
        "lower a budget or raise pools.t4",
    ),
    "replicas too many": (
        "budgets",
        seat("immich-server", replicas=2),
        "15100 MiB promised, 14000 advertised (1100 o",
    ),
    "a queue on top of the seats": (
        "budgets",
        replace(
            LEDGER,
            quotas=(
                *LEDGER.quotas,
                QueueQuota(queue="mem-cq", flavor="t4-mem", pool="t4", resource=GPUMEM, nominal=6000),
            ),
        ),
        "t4: 19300 MiB promised, 14000 advertised (5300 over): mem-cq 6000, llama-swap 5000, …",
    ),
    "a reserve as large as the device": (
        "physical",
        replace(pool("t4", reserve_mib=15360), seats=(), on_demand=()),
        "t4: a device has 15360 MiB and 15360 of them reserved, which leaves 0",
    ),
    "a negative reserve": ("physical", pool("t4", reserve_mib=-1), "change pools.t4.reserve_mib"),
    "a pool without nodes": (
        "physical",
        replace(LEDGER, pools=(*LEDGER.pools, replace(BATCH, name="spare", nodes=0))),
        "pools.spare: 0 nodes x 1 devices is no pool",
    ),
    "a floor as high as the device": (
        "physical",
        replace(pool("t4", floor_mib=14000), on_demand=()),
        "t4: floor 14000 MiB, but a device offers 14000",
    ),
    "a seat that fits the node and no device": (
        "seat-size",
        replace(
            pool("t4", device_count=2),
            seats=(*LEDGER.seats, Seat(name="big", tenant="immich", pool="t4", gpumem_mib=14100)),
        ),
        "big: 14100 MiB a replica, a device of t4 offers 14000; lower residents.big.gpumem_mib",
    ),
    "seats that fit in sum and not one by one": (
        "placement",
        replace(
            LEDGER,
            pools=(replace(LEDGER.pools[0], device_count=2), LEDGER.pools[1]),
            seats=(*LEDGER.seats, *(Seat(name=n, tenant="x", pool="t4", gpumem_mib=7300) for n in ("a", "b"))),
        ),
        "t4: the seats do not fit on 2 devices of 14000 MiB: ",
    ),
    "a reserve below what has no seat": (
        "full-seats",
        replace(LEDGER, unbudgeted=(replace(LEDGER.unbudgeted[0], measured_mib=911),)),
        "t4: a reserve of 1360 MiB for 1361: 450 of the driver and 911 of workloads without a budget, which may all "
        "run on one device (1 short); raise pools.t4.reserve_mib to 1361, or have a workload of unbudgeted take a seat",
    ),
    "promises up to under the floor": (
        "full-seats",
        seat("llama-swap", gpumem_mib=5525),
        "t4: a device may have 13825 MiB promised, and its floor is 1536: 15361 of 15360 (1 over), so it would be "
        "pressed with nobody over budget; lower pools.t4.floor_mib to 1535, or a budget",
    ),
    "two devices, of which one may be filled up to under the floor": (
        "full-seats",
        replace(
            pool("t4", device_count=2),
            seats=(*LEDGER.seats, Seat(name="more", tenant="immich", pool="t4", gpumem_mib=700)),
        ),
        "t4: a device may have 14000 MiB promised, and its floor is 1536: 15536 of 15360 (176 over)",
    ),
    "a seat in no pool": (
        "ledger-references",
        replace(LEDGER, unbudgeted=(replace(LEDGER.unbudgeted[0], pool="t5"),)),
        "unbudgeted.android-emulator: there is no pool t5; add pools.t5 or name another",
    ),
    "a budget on whole devices": (
        "ledger-references",
        replace(LEDGER, unbudgeted=(replace(LEDGER.unbudgeted[0], pool="batch"),)),
        "pool batch hands out whole devices",
    ),
    "a seat of nothing": (
        "ledger-references",
        replace(LEDGER, seats=(*LEDGER.seats, Seat(name="none", tenant="immich", pool="t4", gpumem_mib=0))),
        "residents.none: 0 MiB x 1 is no seat",
    ),
    "a gate that can never open": (
        "agents",
        replace(LEDGER, on_demand=(OnDemand(name="tts", tenant="tts", pool="t4", need_mib=12_800),)),
        "tts: needs 12800 MiB above the floor of 1536, a device of t4 offers 14000",
    ),
}


@pytest.mark.parametrize("case", IN_THE_LEDGER)
def test_a_wrong_number_in_the_ledger_breaks_only_its_rule(case: str) -> None:
    rule, ledger, message = IN_THE_LEDGER[case]
    program = platform(ledger)
    gates = [{"name": o.name, "namespace": o.tenant, "pool": o.pool, "need_mib": o.need_mib} for o in ledger.on_demand]
    put(program["gate"], GATES, json.dumps(gates))
    for name in LEDGER.seats if not ledger.seats else ():
        del program[name.name]
    reported = judge(program)
    assert {rule} == graphs.rules_of(reported)
    assert any(message in line for line in reported), reported


# The name of the object, the field, the value, the rule, a part of the message.
IN_A_FIELD: dict[str, tuple[str, str, object, str, str]] = {
    "a limit that is no quantity": (
        "llama-swap",
        f"{LLAMA}.resources.limits",
        {GPUMEM: "5000MB"},
        "counted",
        "Deployment llama-swap/llama-swap: cannot be proven: '5000MB' is not a quantity",
    ),
    "more than the seat": (
        "llama-swap",
        f"{LLAMA}.resources.limits",
        {GPUMEM: "5001"},
        "seats",
        "a pod asks for 5001 MiB, its seat has 5000; lower its limits or raise residents.llama-swap.gpumem_mib",
    ),
    "another domain": (
        "llama-swap",
        f"{LLAMA}.resources.limits",
        {"viktorbarzin.com/gpumem": "5000"},
        "seats",
        "asks for viktorbarzin.com/gpumem, the ledger's is viktorbarzin.me/gpumem",
    ),
    "more replicas than the seat has": (
        "llama-swap",
        "spec.replicas",
        2,
        "seats",
        "with it 2 pods sit on a seat of 1 x 5000 MiB; run fewer or raise residents.llama-swap.replicas",
    ),
    "a workload nobody knows": (
        "llama-swap",
        "metadata.name",
        "llama-swap-2",
        "seats",
        "asks for 5000 MiB without a seat; add residents.llama-swap-2: {tenant: llama-swap, gpumem_mib: 5000",
    ),
    "a workload in another namespace": (
        "llama-swap",
        "metadata.namespace",
        "frigate",
        "seats",
        "Deployment frigate/llama-swap: asks for 5000 MiB without a seat",
    ),
    "the nodes of another pool": (
        "llama-swap",
        "spec.template.spec.nodeSelector",
        dict(BATCH.node_selector),
        "seats",
        "its seat is on t4, which its nodeSelector rules out",
    ),
    "the default rollout": (
        "llama-swap",
        "spec.strategy",
        {},
        "rollout",
        "a rollout runs 1 more pod of 5000 MiB, which has no budget; set strategy.type: Recreate, or",
    ),
    "a request below the limit": (
        "llama-swap",
        f"{LLAMA}.resources.requests",
        {GPUMEM: "4000"},
        "whole-mib",
        "container main: requests 4000 MiB and limits 5000; make them equal",
    ),
    "a part of a MiB": (
        "llama-swap",
        f"{LLAMA}.resources.limits",
        {GPUMEM: "4999500m"},
        "whole-mib",
        "container main: '4999500m' is not a whole number; write viktorbarzin.me/gpumem in whole MiB",
    ),
    "a request without a limit": (
        "llama-swap",
        f"{LLAMA}.resources",
        {"requests": {GPUMEM: "5000"}},
        "whole-mib",
        "requests 5000 MiB without a limit",
    ),
    "a negative init container": (
        "llama-swap",
        "spec.template.spec.initContainers",
        [{"name": "a", "image": graphs.IMAGE, "resources": {"limits": {GPUMEM: -5000}}}],
        "whole-mib",
        "container a: viktorbarzin.me/gpumem is negative",
    ),
    "a privileged container": (
        "llama-swap",
        f"{LLAMA}.securityContext.privileged",
        True,
        "admission",
        "container main is privileged and so reaches every device past its budget",
    ),
    "the host's devices": (
        "llama-swap",
        "spec.template.spec.volumes",
        [{"name": "dev", "hostPath": {"path": "/dev/nvidia0"}}],
        "admission",
        "volume dev mounts the host's /dev/nvidia0",
    ),
    "the latest image": (
        "llama-swap",
        f"{LLAMA}.image",
        "ghcr.io/a/b:latest",
        "images",
        "image ghcr.io/a/b:latest is not pinned; write a digest (@sha256:…) or a full version (:1.2.3); used by Depl",
    ),
    "an image by a bare major": ("llama-swap", f"{LLAMA}.image", "ghcr.io/a/b:3", "images", "is not pinned"),
    "an image without a tag": ("llama-swap", f"{LLAMA}.image", "localhost:5000/b", "images", "is not pinned"),
    "a quota that nothing enforces": (
        "quota frigate",
        "spec.hard",
        {f"limits.{GPUMEM}": "2000", f"requests.{GPUMEM}": "2000"},
        "resource-quota",
        f"Kubernetes does not enforce spec.hard[limits.{GPUMEM}]; write requests.{GPUMEM}",
    ),
    "a quota of another domain": (
        "quota frigate",
        "spec.hard",
        {"requests.example.com/gpumem": "2000", f"requests.{GPUMEM}": "2000"},
        "resource-quota",
        "requests.example.com/gpumem is not the ledger's requests.viktorbarzin.me/gpumem",
    ),
    "a quota above the seats": (
        "quota immich",
        "spec.hard",
        {f"requests.{GPUMEM}": "5k"},
        "resource-quota",
        "ResourceQuota immich/seats: 5000 MiB, the seats of immich have 4800; make it 4800 or change residents",
    ),
    "a quota of more devices than seats": (
        "quota immich",
        "spec.hard",
        {f"requests.{GPUMEM}": "4800", "requests.viktorbarzin.me/gpu-count": "3"},
        "resource-quota",
        "3 viktorbarzin.me/gpu-count, immich has 2 by its seats and queues; make it 2 or change residents",
    ),
    "a queue above the hardware": (
        "cluster queue",
        "spec.resourceGroups.0.flavors.0.resources.0.nominalQuota",
        2,
        "gpu-quota",
        "may hand out 2 nvidia.com/gpu (nominal and borrowed) of batch, which has 1",
    ),
    "a queue that borrows above the hardware": (
        "cluster queue",
        "spec.resourceGroups.0.flavors.0.resources.0.borrowingLimit",
        "1",
        "gpu-quota",
        "may hand out 2 nvidia.com/gpu",
    ),
    "a flavor on no pool": (
        "cluster queue",
        "spec.resourceGroups.0.flavors.0.name",
        "l4",
        "gpu-quota flavors",
        "the ledger knows no pool behind flavor l4",
    ),
    "a Job that asks for more than its queue covers": (
        "job",
        f"{LLAMA}.resources.limits",
        {names.GPU: "1", "example.com/fpga": "1"},
        "queue-coverage",
        "Job team-a/train: asks for example.com/fpga, which ClusterQueue gpu-cq does not cover",
    ),
    "a door to nowhere": (
        "local queue",
        "spec.clusterQueue",
        "gpu",
        "queue-coverage",
        "there is no ClusterQueue gpu; add queues.cluster_queues.gpu",
    ),
    "a queue for nobody": (
        "cluster queue",
        "spec.namespaceSelector",
        None,
        "namespace-selector",
        "ClusterQueue gpu-cq: namespaceSelector is null, so nobody may use it",
    ),
    "a Job of a class that is not there": (
        "job",
        "metadata.labels",
        {names.KUEUE_QUEUE_LABEL: "team-a-gpu", "kueue.x-k8s.io/priority-class": "gpu-urgend"},
        "preemption",
        "Job team-a/train: there is no WorkloadPriorityClass gpu-urgend; add queues.workload_priorities.gpu-urgend",
    ),
    "classes that change nothing": (
        "cluster queue",
        "spec.preemption",
        {},
        "preemption",
        "withinClusterQueue is Never, so 2 WorkloadPriorityClasses change nothing",
    ),
    "a class among the system's": (
        "gpu-workload",
        "value",
        1_000_000_001,
        "priorities",
        "PriorityClass gpu-workload: value 1000000001 is above 1000000000",
    ),
    "a disposable class that preempts": (
        "homelab-disposable",
        "preemptionPolicy",
        "PreemptLowerPriority",
        "priorities",
        "value -1000 makes its pods disposable, but they may preempt others",
    ),
    "an exception above the rule": (
        "tier-2-gpu",
        "value",
        1_200_000,
        "priorities",
        "stamps tier-2-gpu (1200000), which is not below gpu-workload (1200000); lower priorities.tier-2-gpu",
    ),
    "a pod of a class nobody declared": (
        "llama-swap",
        "spec.template.spec.priorityClassName",
        "gpu-workloads",
        "priorities",
        "names PriorityClass gpu-workloads, which nobody declares; add priorities.gpu-workloads",
    ),
    "an agent that reads another ledger": (
        "watchdog",
        f"{AGENT}.containers.0.env.0.value",
        "default",
        "agents",
        "CronJob gpu-tenancy-system/gpu-vram-watchdog: reads the ledger in default, but it is in gpu-tenancy-system",
    ),
    "an exporter at another port": (
        "watchdog",
        f"{AGENT}.containers.0.env.2.value",
        "9400",
        "agents",
        "looks for the exporter at port 9400, it serves at 9401",
    ),
    "an exporter elsewhere": (
        "watchdog",
        f"{AGENT}.containers.0.env.1.value",
        SYSTEM,
        "agents",
        "looks for the exporter in gpu-tenancy-system, it is in gpu-tenancy-system-nodes",
    ),
    "gates that say another need": (
        "gate",
        GATES,
        json.dumps([{"name": "tts", "namespace": "tts", "pool": "t4", "need_mib": 1024}]),
        "agents",
        "GATES says ('tts', 't4', 1024) of tts, the ledger ('tts', 't4', 2048)",
    ),
    "a margin that keeps the gate shut": (
        "gate",
        GATES,
        json.dumps([{"name": "tts", "namespace": "tts", "pool": "t4", "need_mib": 2048, "margin_mib": 11_000}]),
        "agents",
        "needs 2048 MiB above the floor of 1536 and the margin of 11000",
    ),
    "a gate for a workload with a seat": (
        "gate",
        GATES,
        json.dumps(
            [
                {"name": "tts", "namespace": "tts", "pool": "t4", "need_mib": 2048},
                {"name": "frigate", "namespace": "frigate", "pool": "t4", "need_mib": 2000},
            ]
        ),
        "agents",
        "frigate: lets in frigate, which has a seat of 2000 MiB; take away residents.frigate or on_demand.frigate",
    ),
    "gates that are no JSON": ("gate", GATES, "[", "agents", "cannot be proven: GATES is no list of gates"),
    "a wildcard": (
        f"{names.WATCHDOG} Role",
        "rules.0.verbs",
        ["*"],
        "rbac",
        "Role gpu-tenancy-system/gpu-vram-watchdog: verbs holds '*'; list what is needed",
    ),
    "a right beyond the list": (
        f"{names.WATCHDOG} Role",
        "rules.0.resources",
        ["secrets"],
        "rbac",
        "lets gpu-vram-watchdog get secrets, which is not on its list",
    ),
    "a right on all objects instead of one": (
        f"{names.WATCHDOG} Role",
        "rules.0.resourceNames",
        [],
        "rbac",
        "lets gpu-vram-watchdog get configmaps, which is not on its list, and only with resourceNames",
    ),
    "the administrator's role": (
        f"{names.WATCHDOG} RoleBinding",
        "roleRef",
        {"kind": "ClusterRole", "name": "cluster-admin"},
        "rbac",
        "binds cluster-admin, which may do everything",
    ),
    "nodes/status without its guard": (
        "reconcile writes binding",
        "spec.validationActions",
        ["Audit"],
        "rbac",
        "the right to patch nodes/status is the right to rewrite a node",
    ),
    "resourceslices with a guard for somebody else": (
        "exporter writes",
        "spec.matchConditions.0.expression",
        'request.userInfo.username == "system:serviceaccount:x:y"',
        "rbac",
        "the right to write resourceslices is the right to make up any node's devices; add the "
        "ValidatingAdmissionPolicy that limits gpu-memory-exporter",
    ),
    "an agent as root": (
        "watchdog",
        f"{AGENT}.securityContext.runAsNonRoot",
        False,
        "hardened",
        "CronJob gpu-tenancy-system/gpu-vram-watchdog: securityContext.runAsNonRoot must be true",
    ),
    "an agent on the host's network": ("watchdog", f"{AGENT}.hostNetwork", True, "hardened", "hostNetwork must be off"),
    "an agent that may hang": (
        "watchdog",
        f"{JOB}.activeDeadlineSeconds",
        None,
        "hardened",
        "needs activeDeadlineSeconds",
    ),
    "an agent that a run on a dead node would stop": (
        "watchdog",
        "spec.concurrencyPolicy",
        "Forbid",
        "hardened",
        "concurrencyPolicy must be Allow",
    ),
    "a guard with another capability": (
        "guard",
        f"{LLAMA}.securityContext.capabilities.add",
        ["SYS_RESOURCE", "SYS_ADMIN"],
        "hardened",
        "container agent: must drop ALL capabilities and add none but DAC_OVERRIDE and SYS_RESOURCE",
    ),
    "another agent with the guard's capability": (
        "exporter",
        f"{LLAMA}.securityContext.capabilities.add",
        ["SYS_RESOURCE"],
        "hardened",
        "must drop ALL capabilities and add none",
    ),
    "an agent that sees the host's processes": (
        "watchdog",
        f"{AGENT}.hostPID",
        True,
        "hardened",
        "hostPID must be off",
    ),
    "an agent that writes its image": (
        "watchdog",
        f"{AGENT}.containers.0.securityContext.readOnlyRootFilesystem",
        None,
        "hardened",
        "securityContext.readOnlyRootFilesystem must be true",
    ),
}


@pytest.mark.parametrize("case", IN_A_FIELD)
def test_a_wrong_field_breaks_only_its_rule(case: str) -> None:
    name, path, value, rules, message = IN_A_FIELD[case]
    program = platform()
    put(program[name], path, value)
    reported = judge(program)
    assert graphs.rules_of(reported) == set(rules.split())
    assert any(message in line for line in reported), reported


def labelled(kind: str, name: str, labels: dict[str, str]) -> graphs.Manifest:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": labels}}


# An object more: the object, the rule, a part of the message.
MORE: dict[str, tuple[graphs.Manifest, str, str]] = {
    "a second ledger": (
        {**graphs.ledger_object(), "metadata": {"name": names.LEDGER, "namespace": "other"}},
        "ledger",
        "a second ledger; keep one",
    ),
    "a patch of a workload": (
        an_object("apps/v1", "DeploymentPatch", "llama-swap", "llama-swap", spec={"replicas": 2}),
        "counted",
        "it changes a Deployment that the graph does not hold; declare the whole object",
    ),
    "a patch of the ledger": (
        an_object("v1", "ConfigMapPatch", names.LEDGER, SYSTEM),
        "counted",
        "it changes a ConfigMap that the graph does not hold",
    ),
    "a chart that asks for gpumem": (
        {"apiVersion": "helm.sh/v3", "kind": "Release", "name": "x", "values": {"resources": {"limits": {GPUMEM: 5}}}},
        "counted",
        "it asks for gpumem in a way that is not counted",
    ),
    "a foreign workload": (
        an_object("argoproj.io/v1alpha1", "Rollout", "x", "immich", spec={"template": graphs.pod(1000)}),
        "counted",
        "Rollout immich/x: cannot be proven: it asks for gpumem in a way that is not counted",
    ),
    "a Job of another scheduler": (
        an_object("batch.volcano.sh/v1alpha1", "Job", "x", "immich", spec={"tasks": [{"template": graphs.pod(1000)}]}),
        "counted",
        "Job immich/x: cannot be proven",
    ),
    "an autoscaler above the seat": (
        an_object(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            "x",
            "llama-swap",
            spec={"scaleTargetRef": {"kind": "Deployment", "name": "llama-swap"}, "maxReplicas": 3},
        ),
        "seats",
        "with it 3 pods sit on a seat of 1 x 5000 MiB",
    ),
    "KEDA's default": (
        an_object(
            "keda.sh/v1alpha1", "ScaledObject", "x", "llama-swap", spec={"scaleTargetRef": {"name": "llama-swap"}}
        ),
        "seats",
        "with it 100 pods sit on a seat of 1 x 5000 MiB",
    ),
    "runs that pile up": (
        an_object(
            "batch/v1",
            "CronJob",
            "frigate",
            "frigate",
            spec={"jobTemplate": {"spec": {"template": graphs.pod(10)}}},
        ),
        "seats",
        "cannot be proven: concurrencyPolicy Allow lets runs pile up; write Forbid or Replace",
    ),
    "a second default class": (
        an_object("scheduling.k8s.io/v1", "PriorityClass", "b", value=1, globalDefault=True),
        "priorities",
        "PriorityClass b: a second globalDefault next to PriorityClass a; keep one",
    ),
    "a stamp of a class nobody declared": (
        graphs.stamp("stamp other", "gpu-workloads"),
        "priorities",
        "MutatingAdmissionPolicy stamp other: names PriorityClass gpu-workloads",
    ),
    "a queue more than the hardware has": (
        graphs.kueue("Cohort", "extra", spec=graphs.cluster_queue("gpu-any")["spec"]),
        "gpu-quota",
        "Cohort extra: with it queues have 2 nvidia.com/gpu of batch, which has 1",
    ),
    "every account of the agents' namespace": (
        an_object(
            f"{graphs.RBAC}/v1",
            "RoleBinding",
            "x",
            SYSTEM,
            roleRef={"kind": "ClusterRole", "name": "view"},
            subjects=[{"kind": "Group", "name": f"system:serviceaccounts:{SYSTEM}"}],
        ),
        "rbac",
        "binds every account of the agents' namespace",
    ),
    "a role that is not in the graph": (
        an_object(
            f"{graphs.RBAC}/v1",
            "RoleBinding",
            "x",
            SYSTEM,
            roleRef={"kind": "ClusterRole", "name": "view"},
            subjects=[{"kind": "ServiceAccount", "name": names.WATCHDOG, "namespace": SYSTEM}],
        ),
        "rbac",
        "cannot be proven: gpu-vram-watchdog gets ClusterRole view, which is not in the graph",
    ),
    "a tenant's namespace that holds its pods to nothing": (
        an_object("v1", "Namespace", "immich"),
        "namespaces",
        "Namespace immich: pod-security.kubernetes.io/enforce is missing, tenants.immich is held to baseline",
    ),
    "a patch that lets a tenant's pods own their node": (
        labelled("NamespacePatch", "immich", {names.POD_SECURITY_ENFORCE: "privileged"}),
        "namespaces",
        "pod-security.kubernetes.io/enforce is privileged, tenants.immich is held to baseline; label it baseline",
    ),
    "an exemption that nobody listed": (
        labelled("NamespacePatch", "gpu-operator", {names.EXEMPT: "true"}),
        "namespaces",
        "the label gpu-tenancy/exempt takes it out of admission, and the stack does not list it",
    ),
    "a node with smaller devices": (
        an_object("v1", "Node", "k8s-node1"),
        "physical",
        "Node k8s-node1: nvidia.com/gpu.memory says 8192, pools.t4.memory_mib 15360; lower it",
    ),
}


@pytest.mark.parametrize("case", MORE)
def test_an_object_too_many_breaks_only_its_rule(case: str) -> None:
    manifest, rule, message = MORE[case]
    program = platform() | {"more": manifest}
    if manifest["kind"] == "Node":
        manifest["metadata"]["labels"] = {**LEDGER.pools[0].node_selector, names.LABEL_GPU_MEMORY: "8192"}
    if manifest.get("globalDefault"):
        program = {"a": an_object("scheduling.k8s.io/v1", "PriorityClass", "a", value=0, globalDefault=True)} | program
    reported = judge(program)
    assert graphs.rules_of(reported) == {rule}
    assert any(message in line for line in reported), reported


def test_a_seat_that_asks_for_no_gpu_by_name_is_a_seat_as_before() -> None:
    """By the name NVIDIA's operator sees the pod when it upgrades the driver (docs/operations.md)."""
    program = platform()
    put(program["llama-swap"], f"{LLAMA}.resources.limits", {GPUMEM: "5000", names.GPU: "0"})
    assert judge(program) == []


def test_a_node_that_several_pools_match_is_refused_with_their_names() -> None:
    node = an_object("v1", "Node", "k8s-node1")
    node["metadata"]["labels"] = dict(LEDGER.pools[0].node_selector)
    more = replace(LEDGER.pools[0], name="more")
    program = platform(replace(LEDGER, pools=(*LEDGER.pools, more))) | {"more": node}
    assert [line for line in judge(program) if "Node k8s-node1" in line] == [
        "physical: Node k8s-node1: matched by pools.t4, pools.more: a node belongs to one pool; narrow a node_selector "
        "or relabel the node"
    ]


COUNTED = "viktorbarzin.me/gpu-count"


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({GPUMEM: "5000", COUNTED: "2"}, None),
        ({GPUMEM: "4999", COUNTED: "2"}, "a pod asks for 4999 MiB on 2 devices, which share it evenly; make it 5000"),
        ({GPUMEM: "2000", COUNTED: "2"}, "a pod asks for 2000 MiB on 2 devices, its seat has 2500 on 3"),
        ({GPUMEM: "7500", COUNTED: "3"}, "a pod asks for 3 devices, a node has 2; lower viktorbarzin.me/gpu-count"),
        ({GPUMEM: "5000"}, "a pod asks for 5000 MiB, its seat has 2500; lower its limits or raise residents."),
    ],
)
def test_a_pod_on_several_devices_has_them_on_one_node_and_uses_them_evenly(
    limits: dict[str, str], message: str | None
) -> None:
    two = seat("llama-swap", gpumem_mib=2500, replicas=3)
    program = platform(replace(two, pools=pool("t4", device_count=2, floor_mib=1).pools))
    put(program["llama-swap"], f"{LLAMA}.resources.limits", limits)
    reported = judge(program)
    assert [line.partition("llama-swap/llama-swap: ")[2][: len(message or "")] for line in reported] == (
        [message] if message else []
    )


def test_a_queued_pod_larger_than_any_device_is_refused_with_the_device() -> None:
    """A seat's size keeps every other pod on one device; a queue's quota may span several."""
    quota = QueueQuota(queue="mem-cq", flavor="t4-mem", pool="t4", resource=GPUMEM, nominal=14500)
    program = platform(replace(pool("t4", device_count=2, floor_mib=1360), quotas=(*LEDGER.quotas, quota)))
    job = graphs.platform()["job"]
    job["metadata"]["labels"] = {names.KUEUE_QUEUE_LABEL: "team-a-mem"}
    put(job, "spec.template", graphs.pod(14001))
    assert judge(program | {"job": job}) == [
        "device: Job team-a/train: a pod asks for 14001 MiB, the largest device that it may get (t4) offers 14000; "
        "lower its limits"
    ]
    put(job, "spec.template", graphs.pod(14000))
    assert judge(program | {"job": job}) == []
    put(job, "spec.template.spec.containers.0.resources.limits", {GPUMEM: "28002", COUNTED: "2"})
    assert judge(program | {"job": job}) == [
        "device: Job team-a/train: a pod asks for 28002 MiB on 2 devices, 14001 each, the largest device that it may "
        "get (t4) offers 14000; lower its limits"
    ]


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
    quotas = (replace(LEDGER.quotas[0], borrowing=1), replace(LEDGER.quotas[0], queue="other", nominal=1))
    program = platform(replace(pool("batch", nodes=2), quotas=quotas)) | {"job": wide_job(parallelism=2)}
    queue = program["cluster queue"]
    put(queue, "spec.cohortName", "gpus")
    assert judge(program) == []  # no limit: the whole cohort's
    put(queue, "spec.resourceGroups.0.flavors.0.resources.0.borrowingLimit", 1)
    assert judge(program) == []
    put(queue, "spec.resourceGroups.0.flavors.0.resources.0.borrowingLimit", 0)
    assert graphs.rules_of(judge(program)) == {"queue-coverage"}
    queue["spec"]["resourceGroups"][0]["flavors"].append({**queue["spec"]["resourceGroups"][0]["flavors"][0]})
    assert graphs.rules_of(judge(program)) == {"queue-coverage"}


def test_a_queue_may_borrow_what_another_has() -> None:
    """The lender's nominal quota is counted once: what is borrowed is no GPU more."""
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


def test_a_seat_without_a_quota_is_refused() -> None:
    program = platform()
    del program["quota frigate"]
    assert judge(program) == ["resource-quota: frigate: has seats and no ResourceQuota that holds it to them"]


def test_a_workload_that_may_land_on_two_pools_is_refused() -> None:
    other = Pool(name="l4", node_selector={"gpu": "l4"}, nodes=1, device_count=1, memory_mib=24000, reserve_mib=1000)
    program = platform(replace(LEDGER, pools=(*LEDGER.pools, other)))
    reported = judge(program)
    assert graphs.rules_of(reported) == {"seats"}
    assert (
        "seats: Deployment llama-swap/llama-swap: its seat is on t4, but it may run on l4 too; give it the "
        "nodeSelector of pools.t4"
    ) in reported
    for resident in LEDGER.seats:
        put(program[resident.name], "spec.template.spec.nodeSelector", {"gpu": "t4"})
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


def test_every_rule_has_a_program_that_breaks_it_alone() -> None:
    alone = {rule for rule, *_ in IN_THE_LEDGER.values()}
    alone |= {row[3] for row in IN_A_FIELD.values()}
    alone |= {row[1] for row in MORE.values()}
    alone |= {row[0] for row in test_host_memory.BROKEN.values()}
    # Above, and in the other modules.
    alone |= {
        "flavors",
        "device",
        "caps",
        "claims",
        "platform",
        "scheduler",
        "memory-workloads",
        "memory-guard",
        "memory-gpu",
        "memory-strangers",
    }
    assert {rule.id for rule in RULES} <= alone


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("immich", {names.POD_SECURITY_ENFORCE: "restricted"}),
        ("android-emulator", {}),
        ("nvidia", {names.EXEMPT: "true"}),
        ("elsewhere", {}),
    ],
    ids=["a stricter level", "a tenant that is held to nothing", "what is listed", "nobody's"],
)
def test_a_namespace_that_keeps_to_its_level_and_to_the_list_is_fine(name: str, labels: dict[str, str]) -> None:
    assert judge(platform() | {"more": labelled("Namespace", name, labels)}) == []


def test_the_platform_breaks_no_rule() -> None:
    assert judge(platform()) == []


def test_a_list_that_is_none_cannot_be_proven() -> None:
    program = platform()
    put(program[f"{names.WATCHDOG} Role"], "rules.0.verbs", [1])
    assert any("cannot be proven: verbs must be a list of strings (got [1.0])" in line for line in judge(program))


def test_a_built_in_kind_that_runs_no_pods_may_be_unknown() -> None:
    assert judge({"service": an_object("v1", "Service", "x", "immich", spec=graphs.UNKNOWN)}) == []
