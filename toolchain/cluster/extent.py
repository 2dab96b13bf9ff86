"""The kinds of cluster that can be started."""

from enum import Enum


class Extent(Enum):
    """Each kind has all parts of those before it."""

    API_SERVER = "api-server"  # etcd and the API server, to judge manifests and policies.
    SIMULATED = "simulated"  # The controllers, the scheduler, Kueue, kwok and its nodes.
    REAL_NODE = "real-node"  # A kubelet that runs containers.
    GPU_NODE = "gpu-node"  # NVIDIA's container runtime and cgroup v2 on the kubelet's node.

    @property
    def runs_containers(self) -> bool:
        return self in (Extent.REAL_NODE, Extent.GPU_NODE)
