"""gpu-tenancy for one's own Pulumi program: the platform, and what an application team needs of it."""

from gpu_tenancy.deployment import SeatedDeployment, SeatedDeploymentArgs
from gpu_tenancy.platform import Platform, PlatformArgs
from gpu_tenancy.queue import Queue, QueueArgs
from gpu_tenancy.seat import Seat, SeatArgs

__all__ = [
    "Platform",
    "PlatformArgs",
    "Queue",
    "QueueArgs",
    "Seat",
    "SeatArgs",
    "SeatedDeployment",
    "SeatedDeploymentArgs",
]
