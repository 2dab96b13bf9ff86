"""Tests whether a node's driver limits the GPU memory of a control group (`python -m tests.e2e.gpu.caps`).

The script needs root, Python 3.11 and NVIDIA's driver. An operator can copy it to a GPU machine (`python3 -I caps.py
[limit in MiB]`). The exit code is 1 if a check fails that `enforce: driver` needs.
"""

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

MIB = 2**20
LIMIT_MIB = 2048
ROOT = Path("/sys/fs/cgroup")
OUT_OF_MEMORY = 2  # The number of CUDA_ERROR_OUT_OF_MEMORY.
NO_LIMIT = (3, 6)  # The numbers of NVML's NOT_SUPPORTED and NOT_FOUND.
NOBODY = 65534


class Limits(ctypes.Structure):
    """NVML's struct nvmlGetMemoryLimits_v1_t."""

    _fields_ = (
        ("directory", ctypes.c_char_p),
        ("soft", ctypes.c_uint64),
        ("hard", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
    )


class Verdicts:
    def __init__(self) -> None:
        self.failed = False

    def say(self, what: str, holds: bool, found: object) -> bool:
        print(f"{'holds ' if holds else 'FAILS '} {what}: {found}", flush=True)
        self.failed |= not holds
        return holds


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--child"]:
        return child(arguments[1], int(arguments[2]))
    limit_mib = int(arguments[0]) if arguments else LIMIT_MIB
    verdicts = Verdicts()
    if not verdicts.say("the control groups are of version 2", (ROOT / "cgroup.controllers").exists(), ROOT):
        return 1
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        return int(verdicts.say("NVML can be loaded", False, error)) or 1
    if not has_limits(nvml, verdicts):
        return 1
    device = ctypes.c_void_p()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
    mig = (ctypes.c_uint(), ctypes.c_uint())
    nvml.nvmlDeviceGetMigMode(device, *map(ctypes.byref, mig))
    if verdicts.say("MIG is off", not mig[0].value, mig[0].value):
        with group() as directory:
            held(nvml, device, directory, limit_mib, verdicts)
    return int(verdicts.failed)


def has_limits(nvml: ctypes.CDLL, verdicts: Verdicts) -> bool:
    version = ctypes.create_string_buffer(96)
    if not verdicts.say("NVML opens", (status := nvml.nvmlInit_v2()) == 0, status):
        return False
    nvml.nvmlSystemGetDriverVersion(version, len(version))
    calls = ("nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1")
    there = all(hasattr(nvml, call) for call in calls)
    return verdicts.say("the driver is R615 or newer, its NVML knows limits", there, version.value.decode())


def held(nvml: ctypes.CDLL, device: ctypes.c_void_p, directory: Path, limit_mib: int, verdicts: Verdicts) -> None:
    print(f"        the backend: {'dmem' if (directory / 'dmem.max').exists() else 'misc, or accounting is off'}")
    status, before = get(nvml, device, directory)
    total = unlimited(directory, verdicts)
    none = status in NO_LIMIT or (status == 0 and before.hard >= total)
    verdicts.say("a group without a limit is not shown as limited", none, f"status {status}, {before.hard} bytes")
    wanted = Limits(str(directory).encode(), limit_mib * MIB, limit_mib * MIB)
    status = nvml.nvmlDeviceSetMemoryLimits_v1(device, ctypes.byref(wanted))
    if not verdicts.say(f"a limit of {limit_mib} MiB can be set", status == 0, f"status {status}"):
        return
    status, after = get(nvml, device, directory)
    verdicts.say("it reads back", (status, after.hard) == (0, limit_mib * MIB), f"status {status}, {after.hard} bytes")
    verdicts.say("it reads back without privilege", as_nobody(device, directory) == limit_mib * MIB, "as user 65534")
    shown = run(directory, "total", 0)
    verdicts.say("cuMemGetInfo shows it as the total", 0 < shown <= limit_mib * MIB, f"{shown} bytes")
    half, twice = limit_mib // 2, limit_mib * 2
    verdicts.say("half of it can be allocated", (code := run(directory, "alloc", half)) == 0, f"CUDA says {code}")
    for way in ("alloc", "virtual"):
        code = run(directory, way, twice)
        verdicts.say(f"twice of it is refused ({way})", code == OUT_OF_MEMORY, f"CUDA says {code}")
    code = run(directory, "managed", twice)
    print(
        f"        managed memory is not counted, and twice of it is {'refused' if code else 'given'}: CUDA says {code}"
    )


def unlimited(directory: Path, verdicts: Verdicts) -> int:
    total = run(directory, "total", 0)
    verdicts.say("CUDA works in a group without a limit", total > 0, f"{total} bytes")
    return total


def get(nvml: ctypes.CDLL, device: ctypes.c_void_p, directory: Path) -> tuple[int, Limits]:
    limits = Limits(str(directory).encode(), 0, 0, 0)
    return nvml.nvmlDeviceGetMemoryLimits_v1(device, ctypes.byref(limits)), limits


def as_nobody(device: ctypes.c_void_p, directory: Path) -> int:
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        nvml.nvmlInit_v2()
        nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
        status, limits = get(nvml, device, directory)
        os.write(writing, str(0 if status else limits.hard).encode())
        os._exit(0)
    os.close(writing)
    os.wait()
    return int(os.read(reading, 64) or 0)


@contextlib.contextmanager
def group() -> Iterator[Path]:
    directory = ROOT / f"gpu-tenancy-caps-{os.getpid()}"
    directory.mkdir()
    try:
        yield directory
    finally:
        directory.rmdir()


def run(directory: Path, way: str, mib: int) -> int:
    command = [sys.executable, "-I", __file__, "--child", way, str(mib)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        (directory / "cgroup.procs").write_text(str(process.pid))
        said, _ = process.communicate("go\n")
    return int(said) if said.strip() else -1


def child(way: str, mib: int) -> int:
    sys.stdin.readline()
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    size = ctypes.c_size_t(mib * MIB)
    code = (
        cuda.cuInit(0)
        or cuda.cuDeviceGet(ctypes.byref(device), 0)
        or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        or cuda.cuCtxSetCurrent(context)
    )
    if way == "total":
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        code = code or cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        print(-code if code else total.value)
    elif way == "alloc":
        print(code or cuda.cuMemAlloc_v2(ctypes.byref(pointer), size))
    elif way == "managed":
        code = code or cuda.cuMemAllocManaged(ctypes.byref(pointer), size, 1)
        print(code or cuda.cuMemsetD8_v2(pointer, 1, size) or cuda.cuCtxSynchronize())
    else:
        prop = (ctypes.c_uint32 * 8)(1, 0, 1, device.value)
        print(code or cuda.cuMemCreate(ctypes.byref(pointer), size, ctypes.byref(prop), ctypes.c_uint64(0)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
