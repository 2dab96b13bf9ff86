"""The kinds of cluster that can be started."""

from enum import Enum


class Extent(Enum):
    """The kinds of cluster. Each kind of cluster has all parts of the kinds that are listed before it."""

    API_SERVER = "api-server"  # Only etcd and the API server run, for tests of manifests and policies.
    SIMULATED = "simulated"  # The cluster also has controllers, the scheduler, Kueue and kwok's simulated nodes.
    REAL_NODE = "real-node"  # The cluster also has a node with a kubelet that runs containers.
    GPU_NODE = "gpu-node"  # The real node also has NVIDIA's container runtime and cgroup v2.

    @property
    def runs_containers(self) -> bool:
        return self in (Extent.REAL_NODE, Extent.GPU_NODE)
