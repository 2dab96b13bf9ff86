"""Makes random pods that use several tricks at once to get a GPU."""

from random import Random
from typing import Any

from tenancy.names import GPU, SCHEDULER_NAME, VISIBLE_DEVICES, Names

Pod = dict[str, Any]

EXEMPT_CLASS = "longhorn-critical"  # Only pods in exempt namespaces may have the PriorityClass EXEMPT_CLASS.
_PLUGIN = [GPU, "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/nic"]
_CLAIMED = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
_PATHS = ["/dev/nvidia0", "/dev", "//dev/./nvidiactl", "/dev/fuse", "/", "/devices", "/var/lib/x"]
_ANNOTATIONS = ["cdi.k8s.io/gpu", "devices.nri.io/container.main", "mounts.nri.io", "io.kubernetes.cri-o.Devices"]
_HARMLESS = ["example.com/team", "cdi.k8s.io.example.com/x", "prometheus.io/scrape"]


def pod(random: Random, names: Names, mib: list[int]) -> Pod:
    count = random.choice([0, 0, 0, 0, 0, 1, 2, 3])
    containers = [_container(random, names, mib, f"c{n}", count if not n else 0) for n in range(_few(random, 1))]
    starting = [_container(random, names, mib, f"i{n}", 0) for n in range(_few(random, 0))]
    for container in starting:
        if random.random() < 0.5:
            container["restartPolicy"] = "Always"
    if starting and random.random() < 0.05:
        _limit(starting[0], names.gpu_count, "1")
    spec: dict[str, Any] = {"containers": containers} | ({"initContainers": starting} if starting else {})
    for change in (_runtime, _volume, _placed, _host, _priority, _grace):
        if random.random() < 0.12:
            change(random, spec)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "annotations": _annotations(random, names)},
        "spec": spec,
    }


def _few(random: Random, least: int) -> int:
    return random.choice([least, least, least, least + 1, least + 2])


def _container(random: Random, names: Names, mib: list[int], name: str, count: int) -> dict[str, Any]:
    container: dict[str, Any] = {"name": name, "image": "busybox:1.37.0"}
    container["resources"] = {"limits": {"memory": "64Mi"}}
    if random.random() < 0.45:
        size = random.choice(mib) * max(count, 1) + random.choice([0, 0, 0, 0, 0, 0, -1, 1])
        size //= random.choice([1, 1, 1, 2])
        _limit(container, names.gpumem, random.choice([str(size), size, f"{size}000m", "0"][: random.choice([1, 4])]))
    if random.random() < 0.35:
        _limit(container, random.choice(_PLUGIN), random.choice(["1", 1, "1", "2", "0"]))
    if random.random() < 0.04:
        _limit(container, _CLAIMED, "1")
    if count:
        _limit(container, names.gpu_count, str(count))
    if random.random() < 0.2:
        container["env"] = [_variable(random, names) for _ in range(random.choice([1, 1, 1, 2]))]
    if random.random() < 0.06:
        prefix = random.choice(["NVIDIA_", "N", "MODEL_", VISIBLE_DEVICES, ""])
        container["envFrom"] = [{"configMapRef": {"name": "mine"}} | ({"prefix": prefix} if prefix else {})]
    if random.random() < 0.06:
        container["securityContext"] = random.choice(
            [
                {"privileged": True},
                {"privileged": False},
                {"capabilities": {"add": [random.choice(["SYS_ADMIN", "KILL"])]}},
            ]
        )
    return container


def _limit(container: dict[str, Any], resource: str, amount: object) -> None:
    container["resources"]["limits"][resource] = amount


def _variable(random: Random, names: Names) -> dict[str, Any]:
    fields = [names.device_uuid, names.device_index, "example.com/uuid"]
    given: dict[str, Any] = random.choice(
        [
            {"value": random.choice(["all", "0", "void", "none", "", "GPU-1"])},
            {},
            {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{random.choice(fields)}']"}}},
            {"valueFrom": {"configMapKeyRef": {"name": "mine", "key": "devices"}}},
        ]
    )
    return {"name": random.choice([VISIBLE_DEVICES, VISIBLE_DEVICES, VISIBLE_DEVICES, "MODEL"]), **given}


def _annotations(random: Random, names: Names) -> dict[str, str]:
    forged = [names.device_uuid, names.device_index, f"{names.device_annotation_prefix}any"]
    ours = random.random()
    kind = forged if ours < 0.03 else _ANNOTATIONS if ours < 0.06 else _HARMLESS if ours < 0.3 else []
    return {random.choice(kind): "x"} if kind else {}


def _runtime(random: Random, spec: dict[str, Any]) -> None:
    spec["runtimeClassName"] = random.choice(["nvidia", "nvidia", "nvidia-cdi", "fast", "gvisor"])


def _volume(random: Random, spec: dict[str, Any]) -> None:
    kind = random.random()
    source = {"hostPath": {"path": random.choice(_PATHS)}} if kind < 0.6 else {"emptyDir": {}}
    spec["volumes"] = [{"name": "volume", **source}]
    path = random.choice(["/data", "/var/run/nvidia-container-devices/all"])
    random.choice(spec["containers"])["volumeMounts"] = [{"name": "volume", "mountPath": path}]


def _placed(random: Random, spec: dict[str, Any]) -> None:
    spec |= random.choice(
        [{"nodeName": "node"}, {"schedulerName": SCHEDULER_NAME}, {"schedulerName": "default-scheduler"}]
    )


def _host(random: Random, spec: dict[str, Any]) -> None:
    spec[random.choice(["hostPID", "hostNetwork", "hostIPC"])] = True


def _priority(random: Random, spec: dict[str, Any]) -> None:
    spec["priorityClassName"] = random.choice(
        [
            *("gpu-workload", "tier-2-gpu", "homelab-critical"),
            *("system-node-critical", "system-cluster-critical", EXEMPT_CLASS),
        ]
    )


def _grace(random: Random, spec: dict[str, Any]) -> None:
    spec["terminationGracePeriodSeconds"] = random.choice([0, 30, 600, 601, 3600])
