"""Reads from NVML the memory of each device, and the use of each process. NVIDIA's driver must be R510 or later.

Only the exporter may import this module, because no other agent's zipapp contains nvidia-ml-py. The agents use no
third-party package except nvidia-ml-py. Source: https://docs.nvidia.com/deploy/nvml-api/
"""

from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

from agents.runtime.errors import AgentError
from agents.telemetry.device import Device, Fault, Occupancy, Process, Scan, Uncapped
from tenancy.names import GPU_RUNTIME_CLASS, VISIBLE_DEVICES

T = TypeVar("T")

# In MIG mode, NVML reports the memory and processes of a whole device only to privileged callers. The exporter is not
# privileged.
_MIG = (
    "is in MIG mode, where NVML gives a whole device's figures to privileged callers alone; turn MIG off for its pool"
)
# NVML returns one of these errors for a control group without a limit. The error NOT_SUPPORTED does not always mean
# that the driver cannot cap containers. In NVIDIA's open kernel modules, memacctGetLimits returns NOT_SUPPORTED for
# every group without a limit.
_UNCAPPED = {
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Uncapped.DRIVER,
    pynvml.NVML_ERROR_NOT_SUPPORTED: Uncapped.UNLIMITED,
    pynvml.NVML_ERROR_NOT_FOUND: Uncapped.UNLIMITED,
}
# NVML returns one of these errors if the device or the driver cannot answer the query.
_NONE_OF_THIS_KIND = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


class NvmlError(AgentError):
    """NVML could read no device, because its library is missing or a call failed."""


class Nvml:
    """Keeps NVML open from one reading to the next. If the exporter closed NVML between readings, the driver would
    initialize every device for each reading.

    Closes NVML after a failure, so that an administrator can reset the device.
    """

    def __init__(self) -> None:
        self._opened = False

    def read(self) -> Scan:
        """Returns the node's devices with their processes. For each device that NVML cannot read, returns the reason
        too.

        Raises NvmlError if the node has no device.
        """
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
        """Returns the bytes of the device that a control group may use, or the reason why the group has no cap.

        Call `read` first, so that NVML is open.
        """
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
                return  # NVML cannot close a lost device, but the next reading opens NVML again


def _is_divided(index: int) -> bool:
    try:
        return _divided(pynvml.nvmlDeviceGetHandleByIndex(index))
    except pynvml.NVMLError:
        return False


def _divided(handle: Any) -> bool:
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:
        return False  # the device does not support MIG
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
    """Returns the memory fault of the device that only a reset repairs, or None.

    Source: https://docs.nvidia.com/deploy/dynamic-page-retirement/ (up to Turing) and
    https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/ (from Ampere on).
    """
    if _optional(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle, pynvml.NVML_FEATURE_DISABLED):
        return Fault.PAGES_TO_RETIRE
    *_, failed = _optional(pynvml.nvmlDeviceGetRemappedRows, handle, (0, 0, 0, 0))
    return Fault.ROW_REMAPPING_FAILED if failed else None


def _processes(handle: Any) -> tuple[Process, ...]:
    """Returns each process of the device once. NVML lists a process twice if it has a compute context and a graphics
    context. If NVML lists a process twice, both entries have the whole use of the process.
    """
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
