"""NVML: the memory of each device, and of each process on it.

Source: https://docs.nvidia.com/deploy/nvml-api/, through nvidia-ml-py, the only foreign code in the agents. It is in
the exporter's zipapp alone, so that only the exporter may import this module. Drivers from R510 on.
"""

from collections.abc import Callable
from typing import Any

import pynvml

from agents.device import Device, Occupancy, Process
from agents.errors import AgentError
from tenancy.names import GPU_RUNTIME_CLASS, VISIBLE_DEVICES

# A device or a driver that knows no such processes has none.
_NONE_OF_THIS_KIND = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


class NvmlError(AgentError):
    """The library is not there or a call failed; nothing is known of any device."""


class Nvml:
    """Opened at the first reading and kept open; a failure closes it, so that the next reading starts afresh."""

    def __init__(self) -> None:
        self._opened = False

    def read(self) -> tuple[Occupancy, ...]:
        """Every device of the node, all or none. Raises NvmlError."""
        try:
            if not self._opened:
                pynvml.nvmlInit()
                self._opened = True
            count = pynvml.nvmlDeviceGetCount()
            if not count:
                raise NvmlError(f"no device is visible; the pod needs {VISIBLE_DEVICES} all and a working driver")
            return tuple(_occupancy(index) for index in range(count))
        except pynvml.NVMLError as error:
            self._close()
            raise NvmlError(_words(error)) from None

    def _close(self) -> None:
        if self._opened:
            self._opened = False
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError:
                return  # the device that was lost cannot be let go either; the next reading opens anew


def _occupancy(index: int) -> Occupancy:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    device = Device(
        gpu=index,
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        total_bytes=memory.total,
        used_bytes=memory.used,
        free_bytes=memory.free,
    )
    return Occupancy(device, _processes(handle))


def _processes(handle: Any) -> tuple[Process, ...]:
    """Each process once: one that computes and draws is in two lists, with all its memory in both."""
    used: dict[int, int | None] = {}
    listed = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    listed += _optional(pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, handle)
    listed += _optional(pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, handle)
    for process in listed:
        known = used.get(process.pid, 0)
        told = process.usedGpuMemory
        used[process.pid] = None if known is None or told is None else max(known, told)
    return tuple(Process(pid, used_bytes) for pid, used_bytes in sorted(used.items()))


def _optional(listing: Callable[[Any], list[Any]], handle: Any) -> list[Any]:
    try:
        return listing(handle)
    except pynvml.NVMLError as error:
        if error.value in _NONE_OF_THIS_KIND:
            return []
        raise


def _words(error: Any) -> str:
    if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return f"libnvidia-ml.so.1 cannot be loaded; the pod needs runtimeClassName {GPU_RUNTIME_CLASS}"
    return f"NVML: {error}"
