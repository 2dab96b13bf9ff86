"""Components for your own Pulumi programs: the platform, seats and queues."""

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
