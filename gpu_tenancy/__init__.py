"""Components for your own Pulumi programs: the platform, seats and queues.

A component is imported when a program names it. `kubectl gpumem` is in the same package in the wheel, and starts
without Pulumi's SDK.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpu_tenancy.deployment import SeatedDeployment, SeatedDeploymentArgs
    from gpu_tenancy.platform import Platform, PlatformArgs
    from gpu_tenancy.queue import Queue, QueueArgs
    from gpu_tenancy.seat import Seat, SeatArgs

_MODULES = {"SeatedDeployment": "deployment", "Platform": "platform", "Queue": "queue", "Seat": "seat"}

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


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name.removesuffix("Args"))
    if module is None:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{module}"), name)
