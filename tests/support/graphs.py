"""Builds programs in the form that the policy pack receives, and judges them with the real policy pack."""

import io
import json
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

from pulumi_policy import PolicyProviderResource, PolicyResource, StackValidationArgs
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE, unknown_checking_proxy

from policy.pack import stack_policy
from policy.rule import an_object
from tenancy import names
from tenancy.choices import PodSecurity, Sharing
from tenancy.host_memory.pool import HostMemoryPool
from tenancy.ledger import Ledger, LocalQueue, OnDemand, Pool, QueueQuota, Seat, Tenant, Unbudgeted
from tests.support.memory_pools import NODE_4, host_memory_object

Manifest = dict[str, Any]
Program = dict[str, Manifest]

UNKNOWN = UNKNOWN_STRING_VALUE
SYSTEM = names.SYSTEM_NAMESPACE
NODES = names.node_agent_namespace(SYSTEM)
GPUMEM = "viktorbarzin.me/gpumem"
IMAGE = "docker.io/library/python:3.13.9-slim-bookworm"
RBAC = "rbac.authorization.k8s.io"
ADMISSION = "admissionregistration.k8s.io/v1"

T4 = Pool(
    name="t4",
    node_selector={"nvidia.com/gpu.sharing-strategy": "time-slicing"},
    nodes=1,
    device_count=1,
    memory_mib=15360,
    reserve_mib=1360,
    floor_mib=1536,
    driver_reserved_mib=450,
)
BATCH = Pool(
    name="batch",
    node_selector={"nvidia.com/gpu.sharing-strategy": "none"},
    nodes=1,
    device_count=1,
    sharing=Sharing.WHOLE,
)
LEDGER = Ledger(
    domain="viktorbarzin.me",
    pools=(T4, BATCH),
    seats=(
        Seat(name="immich-ml", tenant="immich", pool="t4", gpumem_mib=3000),
        Seat(name="llama-swap", tenant="llama-swap", pool="t4", gpumem_mib=5000),
        Seat(name="frigate", tenant="frigate", pool="t4", gpumem_mib=2000),
        Seat(name="immich-server", tenant="immich", pool="t4", gpumem_mib=1800),
        Seat(name="portal-stt", tenant="portal-stt", pool="t4", gpumem_mib=1500),
    ),
    on_demand=(OnDemand(name="tts", tenant="tts", pool="t4", need_mib=2048),),
    unbudgeted=(Unbudgeted(name="android-emulator", tenant="android-emulator", pool="t4", measured_mib=154),),
    quotas=(QueueQuota(queue="gpu-cq", flavor="gpu-any", pool="batch", resource=names.GPU, nominal=1),),
    queue_tenants=("team-a",),
    local_queues=(LocalQueue(name="team-a-gpu", tenant="team-a", queue="gpu-cq"),),
    workload_priorities={"gpu-batch": 100, "gpu-urgent": 1000},
    tenants=(
        Tenant(name="immich"),
        Tenant(name="android-emulator", pod_security=PodSecurity.PRIVILEGED),
    ),
    exempt_namespaces=("kube-system", "nvidia"),
)


def seat(name: str, **changes: Any) -> Ledger:
    return replace(LEDGER, seats=tuple(replace(s, **changes) if s.name == name else s for s in LEDGER.seats))


def pool(name: str, **changes: Any) -> Ledger:
    return replace(LEDGER, pools=tuple(replace(p, **changes) if p.name == name else p for p in LEDGER.pools))


def ledger_object(ledger: Ledger = LEDGER) -> Manifest:
    data = {names.LEDGER_KEY: json.dumps(ledger.to_data())}
    return {**an_object("v1", "ConfigMap", names.LEDGER, SYSTEM), "data": data}


def deployment(name: str, namespace: str, mib: object, *, replicas: int = 1) -> Manifest:
    return an_object(
        "apps/v1",
        "Deployment",
        name,
        namespace,
        spec={"replicas": replicas, "strategy": {"type": "Recreate"}, "template": pod(mib)},
    )


def pod(mib: object, resource: str = GPUMEM) -> Manifest:
    container = {"name": "main", "image": "ghcr.io/a/b:1.2.3", "resources": {"limits": {resource: mib}}}
    return {"metadata": {"labels": {}}, "spec": {"containers": [container]}}


def agent_pod(account: str) -> Manifest:
    return {
        "metadata": {"labels": names.labels("agent", account)},
        "spec": {
            "serviceAccountName": account,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "agent",
                    "image": IMAGE,
                    "resources": {"limits": {"memory": "64Mi"}},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }


def cron_job(account: str) -> Manifest:
    job = {"activeDeadlineSeconds": 58, "template": agent_pod(account)}
    spec = {"concurrencyPolicy": "Allow", "jobTemplate": {"spec": job}}
    return an_object("batch/v1", "CronJob", account, SYSTEM, spec=spec)


def kueue(kind: str, name: str, namespace: str | None = None, **body: Any) -> Manifest:
    return an_object(names.KUEUE_API, kind, name, namespace, **body)


def cluster_queue(*flavors: str, nominal: object = 1) -> Manifest:
    quotas = [{"name": f, "resources": [{"name": names.GPU, "nominalQuota": nominal}]} for f in flavors]
    spec = {
        "namespaceSelector": {"matchLabels": {names.LABEL_NAMESPACE: "team-a"}},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": [names.GPU], "flavors": quotas}],
    }
    return kueue("ClusterQueue", "gpu-cq", spec=spec)


def platform(ledger: Ledger = LEDGER, memory: HostMemoryPool = NODE_4) -> Program:
    program: Program = {"ledger": ledger_object(ledger)}
    for tenant in sorted({s.tenant for s in ledger.seats}):
        hard = {ledger.names.requests_gpumem: str(ledger.budget_mib(tenant))}
        program[f"quota {tenant}"] = an_object("v1", "ResourceQuota", "seats", tenant, spec={"hard": hard})
    sizes = {s.name: s.gpumem_mib for s in ledger.seats}
    for s in LEDGER.seats:
        program[s.name] = deployment(s.name, s.tenant, sizes.get(s.name, s.gpumem_mib))
    return program | {"memory pools": host_memory_object(memory)} | _priorities() | _queues() | _agents()


def _priorities() -> Program:
    values = {
        "gpu-workload": 1_200_000,
        "tier-2-gpu": 600_000,
        "homelab-critical": 100_000,
        "homelab-disposable": -1000,
    }
    program = {name: an_object("scheduling.k8s.io/v1", "PriorityClass", name, value=v) for name, v in values.items()}
    program["homelab-disposable"]["preemptionPolicy"] = "Never"
    return program


def _queues() -> Program:
    job_pod = pod("1", names.GPU)
    job_pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1", names.GPU: "1"}
    job = an_object("batch/v1", "Job", "train", "team-a", spec={"suspend": True, "template": job_pod})
    job["metadata"]["labels"] = {names.KUEUE_QUEUE_LABEL: "team-a-gpu"}
    configuration = "apiVersion: config.kueue.x-k8s.io/v1beta2\nresources: {excludeResourcePrefixes: [cpu, memory]}\n"
    values = {"managerConfig": {"controllerManagerConfigYaml": configuration}}
    return {
        "kueue": {"apiVersion": "helm.sh/v3", "kind": "Release", "name": "kueue", "values": values},
        "flavor": kueue("ResourceFlavor", "gpu-any", spec={}),
        "cluster queue": cluster_queue("gpu-any"),
        "local queue": kueue("LocalQueue", "team-a-gpu", "team-a", spec={"clusterQueue": "gpu-cq"}),
        "gpu-batch": kueue("WorkloadPriorityClass", "gpu-batch", value=100),
        "gpu-urgent": kueue("WorkloadPriorityClass", "gpu-urgent", value=1000),
        "job": job,
    }


def _agents() -> Program:
    exporter, guard = agent_pod(names.EXPORTER), agent_pod(names.GUARD)
    for pod_of_a_node in (exporter, guard):
        pod_of_a_node["spec"]["hostPID"] = True
    guard["spec"]["containers"][0]["securityContext"] |= {"runAsNonRoot": False, "runAsUser": 0}
    guard["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] = ["SYS_RESOURCE", "DAC_OVERRIDE"]
    return {
        "reconcile": cron_job(names.RECONCILE),
        "watchdog": cron_job(names.WATCHDOG),
        "gate": cron_job(names.GATE),
        "exporter": an_object("apps/v1", "DaemonSet", names.EXPORTER, NODES, spec={"template": exporter}),
        "guard": an_object("apps/v1", "DaemonSet", names.GUARD, NODES, spec={"template": guard}),
    }


def consumer(mib: object = 5000) -> Program:
    return {"llama-swap": deployment("llama-swap", "llama-swap", mib)}


def resources(
    program: Mapping[str, Manifest], providers: Mapping[str, Manifest | None] | None = None
) -> list[PolicyResource]:
    """Source: AnalyzeStack in pulumi_policy/policy.py. All numbers become floats."""
    return [
        PolicyResource(
            _type_token(manifest),
            unknown_checking_proxy(_floats(manifest)),
            _urn(name),
            name,
            None,
            _provider((providers or {}).get(name)),
            None,
            [],
            {},
        )
        for name, manifest in program.items()
    ]


def _provider(properties: Manifest | None) -> PolicyProviderResource | None:
    kind = "pulumi:providers:kubernetes"
    if properties is None:
        return None
    return PolicyProviderResource(kind, unknown_checking_proxy(properties), f"urn:pulumi:test::x::{kind}::p", "p")


def _type_token(manifest: Manifest) -> str:
    module = manifest["apiVersion"]
    return f"kubernetes:{module if '/' in module else f'core/{module}'}:{manifest['kind']}"


def _urn(name: str) -> str:
    return f"urn:pulumi:test::gpu-tenancy::kubernetes:x/v1:X::{name}"


def _floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_floats(item) for item in value]
    return float(value) if type(value) is int else value


def judge(program: Mapping[str, Manifest], config: Mapping[str, Any] | None = None) -> list[str]:
    with redirect_stdout(io.StringIO()):
        return judged(program, config)


def judged(
    program: Mapping[str, Manifest],
    config: Mapping[str, Any] | None = None,
    providers: Mapping[str, Manifest | None] | None = None,
) -> list[str]:
    messages = []

    def report(message: str, urn: str | None = None) -> None:
        assert urn is None or urn in {_urn(name) for name in program}, urn
        messages.append(message)

    stack_policy().validate(StackValidationArgs(resources(program, providers), config), report)
    return messages


def rules_of(messages: Iterable[str]) -> set[str]:
    return {message.partition(":")[0] for message in messages}


def put(manifest: Manifest, path: str, value: object) -> None:
    *parents, last = path.split(".")
    target: Any = manifest
    for part in parents:
        target = target[int(part)] if isinstance(target, list) else target.setdefault(part, {})
    target[int(last) if isinstance(target, list) else last] = value
