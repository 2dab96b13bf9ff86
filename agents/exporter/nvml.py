"""NVML: the memory of each device, and of each process on it.

Source: https://docs.nvidia.com/deploy/nvml-api/, through nvidia-ml-py, the only foreign code in the agents. It is in
the exporter's zipapp alone, so that only the exporter may import this module. Drivers from R510 on.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

from agents.runtime.errors import AgentError
from agents.telemetry.device import Device, Fault, Occupancy, Process, Scan, Uncapped
from tenancy.names import GPU_RUNTIME_CLASS, VISIBLE_DEVICES

T = TypeVar("T")

# "In MIG mode, if device handle is provided, the API returns aggregate information, only if the caller has appropriate
# privileges": NVML on nvmlDeviceGetMemoryInfo and on the processes. Ours has none, and budgets are for whole devices.
_MIG = (
    "is in MIG mode, where NVML gives a whole device's figures to privileged callers alone; turn MIG off for its pool"
)
# NVML's answers to what a group is held to, where that is no number. It answers NOT_SUPPORTED also of a group without
# any limit (memacctGetLimits in NVIDIA's open kernel modules): that is never a cap, and not known to be a driver that
# cannot.
_UNCAPPED = {
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Uncapped.DRIVER,
    pynvml.NVML_ERROR_NOT_SUPPORTED: Uncapped.UNLIMITED,
    pynvml.NVML_ERROR_NOT_FOUND: Uncapped.UNLIMITED,
}
# A device or a driver that knows no such thing has none.
_NONE_OF_THIS_KIND = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


class NvmlError(AgentError):
    """The library is not there or a call failed; nothing is known of any device."""


class Nvml:
    """Opened at the first reading and kept open: without a client the driver would start each device for each reading.
    A failure closes it, so that the next reading starts afresh, and a device can be reset in between."""

    def __init__(self) -> None:
        self._opened = False

    def read(self) -> Scan:
        """Every device of the node, or why it cannot be read. Raises NvmlError where there is none."""
        try:
            if not self._opened:
                pynvml.nvmlInit()
                self._opened = True
            count = pynvml.nvmlDeviceGetCount()
            if not count:
                raise NvmlError(f"no device is visible; the pod needs {VISIBLE_DEVICES} all and a working driver")
        except pynvml.NVMLError as error:
            self._close()
            raise NvmlError(_words(error)) from None
        return self._scan(count)

    def limit(self, uuid: str, directory: str) -> int | Uncapped:
        """What the driver holds the control group of that directory to on the device, bytes; or why that is no cap.
        Asked after `read`, which opens NVML."""
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            if _divided(handle):
                return Uncapped.MIG
            limits = pynvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=directory.encode())
            pynvml.nvmlDeviceGetMemoryLimits_v1(handle, limits)
            total = pynvml.nvmlDeviceGetMemoryInfo(handle).total
        except pynvml.NVMLError as error:
            return _UNCAPPED.get(error.value, Uncapped.UNREADABLE)
        return int(limits.hardLimit) if limits.hardLimit < total else Uncapped.UNLIMITED

    def _scan(self, count: int) -> Scan:
        found, failed = [], {}
        for index in range(count):
            try:
                found.append(_occupancy(index))
            except pynvml.NVMLError as error:
                failed[index] = f"gpu {index}: {_MIG if _is_divided(index) else _words(error)}"
        if failed:
            self._close()
        return Scan(tuple(found), failed)

    def _close(self) -> None:
        if self._opened:
            self._opened = False
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError:
                return  # the device that was lost cannot be let go either; the next reading opens again


def _is_divided(index: int) -> bool:
    """Whether MIG divides the device."""
    try:
        return _divided(pynvml.nvmlDeviceGetHandleByIndex(index))
    except pynvml.NVMLError:
        return False


def _divided(handle: Any) -> bool:
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:
        return False  # a device that has no such mode
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _occupancy(index: int) -> Occupancy:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    device = Device(
        gpu=index,
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        total_bytes=memory.total,
        used_bytes=memory.used,
        free_bytes=memory.free,
        fault=_fault(handle),
    )
    return Occupancy(device, _processes(handle))


def _fault(handle: Any) -> Fault | None:
    """Memory that has gone bad beyond what the device can mend while it runs.

    Source: https://docs.nvidia.com/deploy/dynamic-page-retirement/ (to Turing) and
    https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/ (from Ampere on, which have the one and not the other).
    """
    if _optional(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle, pynvml.NVML_FEATURE_DISABLED):
        return Fault.PAGES_TO_RETIRE
    *_, failed = _optional(pynvml.nvmlDeviceGetRemappedRows, handle, (0, 0, 0, 0))
    return Fault.ROW_REMAPPING_FAILED if failed else None


def _processes(handle: Any) -> tuple[Process, ...]:
    """Each process once: one that computes and draws is in two lists, with all its memory in both."""
    used: dict[int, int | None] = {}
    listed = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    listed += _optional(pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, handle, [])
    listed += _optional(pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, handle, [])
    for process in listed:
        known = used.get(process.pid, 0)
        reported = process.usedGpuMemory
        used[process.pid] = None if known is None or reported is None else max(known, reported)
    return tuple(Process(pid, used_bytes) for pid, used_bytes in sorted(used.items()))


def _optional(call: Callable[[Any], T], handle: Any, otherwise: T) -> T:
    try:
        return call(handle)
    except pynvml.NVMLError as error:
        if error.value in _NONE_OF_THIS_KIND:
            return otherwise
        raise


def _words(error: Any) -> str:
    if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return f"libnvidia-ml.so.1 cannot be loaded; the pod needs runtimeClassName {GPU_RUNTIME_CLASS}"
    return f"NVML: {error}"
