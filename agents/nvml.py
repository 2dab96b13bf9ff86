"""NVML through ctypes: the few calls that tell the memory of each device.

Source: https://docs.nvidia.com/deploy/nvml-api/. `used` includes what the driver reserves.
"""

import ctypes
from dataclasses import dataclass

from agents.errors import AgentError
from tenancy.names import GPU_RUNTIME_CLASS, VISIBLE_DEVICES

LIBRARY = "libnvidia-ml.so.1"
_UUID_BYTES = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE
_SUCCESS = 0


class NvmlError(AgentError):
    """The library is not there or a call failed; nothing is known of any device."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device's memory. `gpu` is its index on the node."""

    gpu: int
    uuid: str
    total_bytes: int
    used_bytes: int
    free_bytes: int


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml:
    """Opened at the first reading and kept open; a failure closes it, so that the next reading starts afresh."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._path = library
        self._library: ctypes.CDLL | None = None

    def devices(self) -> tuple[Device, ...]:
        """Every device of the node, all or none. Raises NvmlError."""
        try:
            self._library = self._library or _opened(self._path)
            count = ctypes.c_uint()
            _call(self._library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
            if not count.value:
                raise NvmlError(f"no device is visible; the pod needs {VISIBLE_DEVICES} all and a working driver")
            return tuple(_device(self._library, index) for index in range(count.value))
        except NvmlError:
            if self._library:
                self._library.nvmlShutdown()
            self._library = None
            raise


def _opened(path: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(path)
        library.nvmlErrorString.restype = ctypes.c_char_p
    except (OSError, AttributeError) as error:
        raise NvmlError(
            f"{path}: cannot be loaded: {error}; the pod needs runtimeClassName {GPU_RUNTIME_CLASS}"
        ) from None
    _call(library, "nvmlInit_v2")
    return library


def _device(library: ctypes.CDLL, index: int) -> Device:
    handle, uuid, memory = ctypes.c_void_p(), ctypes.create_string_buffer(_UUID_BYTES), _Memory()
    _call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    _call(library, "nvmlDeviceGetUUID", handle, uuid, ctypes.c_uint(_UUID_BYTES))
    _call(library, "nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    return Device(
        gpu=index,
        uuid=uuid.value.decode("ascii", errors="replace"),
        total_bytes=memory.total,
        used_bytes=memory.used,
        free_bytes=memory.free,
    )


def _call(library: ctypes.CDLL, function: str, *arguments: object) -> None:
    status = getattr(library, function)(*arguments)
    if status != _SUCCESS:
        words = library.nvmlErrorString(status)
        raise NvmlError(f"{function}: {words.decode(errors='replace') if words else 'error'} ({status})")
