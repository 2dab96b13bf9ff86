"""Builds a stack for the cluster of record 0000, and the objects of this cluster."""

from gpumem.preflight.declared import Declared, DeclaredPod, Named
from policy.admitted import judge_by
from tenancy.choices import PodSecurity
from tenancy.ledger import AdmissionTerms, Ledger, Pool, Seat, Tenant
from tests.support.given_clusters import NAMESPACE_OF, STEADY, Cluster, pod, record_0000, residents

GPUMEM = "viktorbarzin.me/gpumem"
T4 = Pool(
    name="t4",
    node_selector={"nvidia.com/gpu.present": "true"},
    nodes=1,
    device_count=1,
    memory_mib=15360,
    reserve_mib=1360,
    floor_mib=1536,
)
NAMESPACES = sorted({NAMESPACE_OF.get(name, name) for name in STEADY})
LEDGER = Ledger(
    domain="viktorbarzin.me",
    pools=(T4,),
    seats=tuple(Seat(name=n, tenant=NAMESPACE_OF.get(n, n), pool="t4", gpumem_mib=3000) for n in STEADY),
    tenants=(
        *(Tenant(name=name) for name in NAMESPACES),
        Tenant(name="android-emulator", pod_security=PodSecurity.PRIVILEGED),
    ),
    exempt_namespaces=("kube-system", "nvidia"),
    admission=AdmissionTerms(gpu_priority="gpu-workload", priorities={"gpu-workload": ()}, own=("gpu-tenancy-system",)),
)
_EXPORTER = {
    "metadata": {"labels": {"app.kubernetes.io/name": "gpu-memory-exporter"}},
    "spec": {
        "containers": [{"name": "exporter", "image": "python:3.13"}],
        "hostPID": True,
        "runtimeClassName": "nvidia",
        "serviceAccountName": "gpu-memory-exporter",
        "priorityClassName": "system-node-critical",
    },
}
EXPORTER = DeclaredPod(
    workload=Named("DaemonSet", "gpu-tenancy-system-nodes", "gpu-memory-exporter"), template=_EXPORTER
)
DECLARED = Declared(ledger=LEDGER, stack="mine", refusals=judge_by(LEDGER), pods=(EXPORTER,))


def budgeted() -> Cluster:
    cluster = record_0000()
    kept = [each for each in cluster.pods if each["metadata"]["namespace"] not in (*NAMESPACES, "android-emulator")]
    cluster.pods = [*kept, *residents({GPUMEM: "3k"})]
    cluster.namespaces["android-emulator"] = {}
    cluster.pods.append(pod("calico-node-x", "kube-system", owner=("DaemonSet", "calico-node")))
    cluster.pods[-1]["spec"]["containers"][0]["image"] = "quay.io/calico/node:v3.31"
    return cluster


def ready() -> Cluster:
    """Returns a cluster with all that the stack's pods need."""
    cluster = budgeted()
    cluster.runtime_classes = [{"metadata": {"name": "nvidia"}, "handler": "nvidia"}]
    return cluster
