"""The kinds of cluster that can be started."""

from enum import Enum


class Extent(Enum):
    """The kinds of cluster. Each kind has all parts of the kinds that are listed before it."""

    API_SERVER = "api-server"  # Has only etcd and the API server, for tests of manifests and policies.
    SIMULATED = "simulated"  # Also has the controllers, the scheduler, Kueue, and kwok's simulated nodes.
    REAL_NODE = "real-node"  # Also has a node with a kubelet that runs containers.
    GPU_NODE = "gpu-node"  # Also has NVIDIA's container runtime and cgroup v2 on the real node.

    @property
    def runs_containers(self) -> bool:
        return self in (Extent.REAL_NODE, Extent.GPU_NODE)
