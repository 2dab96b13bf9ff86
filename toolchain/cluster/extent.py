"""How much of a cluster is wanted."""

from enum import Enum


class Extent(Enum):
    """Each has what those before it have."""

    API_SERVER = "api-server"  # etcd and the API server: to judge manifests and policies
    SIMULATED = "simulated"  # and the controllers, the scheduler, Kueue, kwok and its nodes
    REAL_NODE = "real-node"  # and a kubelet that runs containers
    GPU_NODE = "gpu-node"  # the kubelet's node has NVIDIA's container runtime and cgroup v2 instead

    @property
    def runs_containers(self) -> bool:
        return self in (Extent.REAL_NODE, Extent.GPU_NODE)
