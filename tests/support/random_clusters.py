"""Draws small clusters of every kind that init meets: cards that many sources describe, rightly or wrongly, and pods
that reach them in every way."""

import random
from typing import Any

from gpumem.init.peaks import Peak
from gpumem.pods import Workload
from tests.support.given_clusters import (
    GPU,
    Cluster,
    Object,
    device_plugin,
    device_slice,
    labelled,
    node,
    of_deployment,
    pod,
)

CARDS = {"Tesla-T4": 15360, "NVIDIA-L4": 23034, "NVIDIA-H100-80GB-HBM3": 81559, "NVIDIA-GB10": 0, "tiny": 900}
NAMESPACES = ("a", "b", "c", "default", "kube-system")
_GKE, _KARPENTER = "cloud.google.com/gke-", "karpenter.k8s.aws/instance-gpu-"


def cluster(seed: int) -> tuple[Cluster, dict[Workload, Peak]]:
    """Returns the cluster of this number, and the measured peaks of some of its workloads."""
    draw = random.Random(seed)  # noqa: S311 (not a secret)
    made = Cluster(nodes=[node("without")], version=draw.choice(["v1.36.3", "v1.36.3", "v1.36.3", "v1.34.0"]))
    for number in range(draw.randint(1, 4)):
        made.nodes.append(_node(draw, f"n{number}", made))
    peaks = {}
    for number in range(draw.randint(0, 8)):
        pods = _workload(draw, number, [each["metadata"]["name"] for each in made.nodes[1:]])
        made.pods += pods
        if draw.random() < 0.2:
            workload = Workload(pods[0]["metadata"]["namespace"], "Deployment", f"w{number}")
            peaks[workload] = Peak(draw.choice([1, 300, 2150, 14000, 20000]), "gpu_pod_memory_used_bytes", 28)
    if draw.random() < 0.3:
        made.pods.append(device_plugin(draw.choice(["nvidia", "kube-system", "default"]), "n0"))
    return made, peaks


def _node(draw: random.Random, name: str, made: Cluster) -> Object:  # noqa: C901 (one case for each kind of node)
    card = draw.choice(sorted(CARDS))
    mib, count, replicas = CARDS[card] or 15360, draw.randint(1, 4), draw.choice([1, 1, 1, 4, 10])
    units = count * replicas
    found = node(name, {GPU: str(units), "memory": "64Gi"})
    match draw.choice(
        ["labels", "labels", "stale", "slices", "gke", "karpenter", "hami", "mig", "mixed", "foreign", "bare"]
    ):
        case "labels":
            found = labelled(name, card, mib, count=count, replicas=replicas)
        case "stale":
            found = labelled(name, card, mib, count=count)
            found["status"]["capacity"][GPU] = found["status"]["allocatable"][GPU] = str(units)
        case "slices":
            found = node(name, {GPU: str(count)})
            made.slices.append(device_slice(name, *(draw.choice([mib, 15360]) for _ in range(count))))
        case "gke":
            found["metadata"]["labels"] |= {f"{_GKE}accelerator": "nvidia-l4", f"{_GKE}accelerator-count": str(count)}
            found["metadata"]["labels"] |= {f"{_GKE}max-shared-clients-per-gpu": str(replicas)} if replicas > 1 else {}
        case "karpenter":
            found["metadata"]["labels"] |= {f"{_KARPENTER}name": "t4", f"{_KARPENTER}count": str(count)}
        case "hami":
            rows = [f"GPU-{each},{replicas},{mib},100,NVIDIA-{card},0,true" for each in range(count)]
            found["metadata"]["annotations"] = {"hami.io/node-nvidia-register": ":".join(rows)}
        case "mig":
            found = labelled(name, "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 4864, count=7)
        case "mixed":
            found = labelled(name, "NVIDIA-H100-80GB-HBM3", 81559, count=4)
            found["status"]["capacity"] = found["status"]["allocatable"] = {GPU: "2", "nvidia.com/mig-1g.10gb": "14"}
        case "foreign":
            found = node(name, {draw.choice(["volcano.sh/vgpu-number", "aliyun.com/gpu-mem"]): str(units)})
    if draw.random() < 0.15:
        found["status"]["allocatable"] = found["status"]["allocatable"] | {GPU: "0"}
    if draw.random() < 0.2:
        found["spec"]["taints"] = [{"key": GPU, "effect": "NoSchedule"}]
    return found


def _workload(draw: random.Random, number: int, nodes: list[str]) -> list[Object]:
    namespace, on = draw.choice(NAMESPACES), draw.choice([None, *nodes, *nodes])
    spec: dict[str, Any] = draw.choice([{}, {}, {}, {"hostNetwork": True}, {"schedulerName": "volcano"}])
    ways: list[dict[str, Any]] = [
        {"limits": {GPU: str(draw.randint(1, 3))}},
        {"limits": {GPU: "1"}},
        {"limits": {"nvidia.com/mig-1g.5gb": "1"}},
        {"limits": {GPU: "1", "nvidia.com/gpumem": str(draw.choice([3000, 40000]))}},
        {"limits": {"example.com/gpumem": str(draw.choice([100, 5000, 16000]))}},
        {"limits": {"volcano.sh/vgpu-memory": "3000"}},
        {"runtimeClassName": "nvidia"},
        {"annotations": {"gpu-fraction": "0.5"}, "schedulerName": "kai-scheduler"},
    ]
    made = spec | draw.choice(ways)
    if draw.random() < 0.05:
        return [pod(f"gpu-reservation-w{number}", "kai-resource-reservation", on=on, limits={GPU: "1"})]
    return of_deployment(f"w{number}", namespace, replicas=draw.randint(1, 3), on=on, **made)
