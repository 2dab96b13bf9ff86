"""Compares the exporter's figures with nvidia-smi's figures (`python3 -I tests/e2e/gpu/compare.py exporter.pyz`).

The script needs only Python 3.11 and NVIDIA's driver. `python -m tests.e2e.gpu.archive exporter.pyz` makes the
exporter's file. The exit code is 1 if figures differ by more than nvidia-smi rounds.
"""

import contextlib
import ctypes
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MIB = 2**20
ALLOCATIONS_MIB = (512, 1536, 3000)
ROUNDING_MIB = 1
PATIENCE_SECONDS = 60
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Child:
    process: "subprocess.Popen[str]"
    asked_mib: int
    pod_uid: str | None


@dataclass(frozen=True)
class Row:
    what: str
    exporter_mib: float
    smi_mib: float

    @property
    def agrees(self) -> bool:
        return abs(self.exporter_mib - self.smi_mib) <= ROUNDING_MIB


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--allocate"]:
        return allocate(int(arguments[1]))
    (archive,) = arguments
    print(smi("--query-gpu=name,driver_version,uuid"))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        port = stack.enter_context(exporter(Path(archive), Path(folder)))
        children = [stack.enter_context(child(mib)) for mib in ALLOCATIONS_MIB]
        rows = settled(port, children)
    print("| figure | exporter, MiB | nvidia-smi, MiB | |\n|---|---|---|---|")
    for row in rows:
        verdict = "" if row.agrees else "DIFFERS"
        print(f"| {row.what} | {row.exporter_mib:.1f} | {row.smi_mib:.0f} | {verdict} |")
    return 0 if rows and all(row.agrees for row in rows) else 1


def allocate(mib: int) -> int:
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    for status in (
        cuda.cuInit(0),
        cuda.cuDeviceGet(ctypes.byref(device), 0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        cuda.cuCtxSetCurrent(context),
        cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib * MIB)),
    ):
        if status:
            raise SystemExit(f"the CUDA driver refused with {status}")
    print("allocated", flush=True)
    sys.stdin.read()
    return 0


@contextlib.contextmanager
def child(mib: int) -> Iterator[Child]:
    command = [sys.executable, "-I", __file__, "--allocate", str(mib)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
        pod_group(process.pid) as pod_uid,
    ):
        try:
            if process.stdout is None or process.stdout.readline() != "allocated\n":
                raise SystemExit(f"a child could not allocate {mib} MiB")
            yield Child(process, mib, pod_uid)
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def pod_group(pid: int) -> Iterator[str | None]:
    root = Path("/sys/fs/cgroup")
    hierarchy = root if (root / "cgroup.controllers").exists() else root / "pids"
    pod, container = str(uuid.uuid4()), uuid.uuid4().hex * 2
    group = hierarchy / f"gpu-tenancy-compare-{os.getpid()}" / f"pod{pod}" / container
    try:
        group.mkdir(parents=True)
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        print(f"pods are NOT compared: no control group can be made here: {error}", file=sys.stderr)
        yield None
        return
    try:
        yield pod
    finally:
        for folder in (group, group.parent, group.parent.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextlib.contextmanager
def exporter(archive: Path, folder: Path) -> Iterator[int]:
    certificates = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
    (folder / "ca.crt").symlink_to(certificates)
    (folder / "token").write_text("none")
    with socket.create_server(("", 0)) as probe:
        port = probe.getsockname()[1]
    environ = {
        **os.environ,
        "PORT": str(port),
        "INTERVAL_SECONDS": "1",
        "NODE_NAME": "node",
        "LEDGER_NAMESPACE": "none",
        "PUBLISH_DEVICES": "false",
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": "1",
        "SERVICE_ACCOUNT_DIRECTORY": str(folder),
    }
    with subprocess.Popen([sys.executable, "-I", archive, "exporter"], env=environ, stdout=sys.stderr) as process:
        try:
            yield port
        finally:
            process.send_signal(signal.SIGTERM)


def settled(port: int, children: Sequence[Child]) -> list[Row]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        served = scrape(port)
        rows = compare(served, children) if served else []
        if (rows and all(row.agrees for row in rows)) or time.monotonic() > deadline:
            return rows
        time.sleep(1)


def compare(served: Sequence[tuple[str, dict[str, str], float]], children: Sequence[Child]) -> list[Row]:
    devices = [line.split(", ") for line in smi("--query-gpu=uuid,memory.total,memory.used,memory.free").splitlines()]
    rows = []
    for gpu, total, _, free in devices:
        # The figure `used` is not compared. NVML's first version counts the driver's memory as used, but nvidia-smi
        # does not.
        for name, told in (("total", total), ("free", free)):
            value = sum(
                v for n, labels, v in served if n == f"gpu_device_memory_{name}_bytes" and labels["uuid"] == gpu
            )
            rows.append(Row(f"{name} of {gpu}", value / MIB, float(told)))
    told = {}
    for line in smi("--query-compute-apps=pid,used_memory").splitlines():
        pid, used = line.split(", ")
        told[int(pid)] = float(used)
    for held in children:
        if held.pod_uid is None:
            continue
        if held.process.pid not in told:
            print(f"nvidia-smi does not list {held.process.pid}: is this the host's PID namespace?", file=sys.stderr)
            continue
        value = sum(
            v for n, labels, v in served if n == "gpu_pod_memory_used_bytes" and labels["pod_uid"] == held.pod_uid
        )
        rows.append(Row(f"a pod that asked for {held.asked_mib}", value / MIB, told[held.process.pid]))
    return rows


def scrape(port: int) -> list[tuple[str, dict[str, str], float]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        print(f"the exporter says {error.code}: {error.read().decode().strip()}", file=sys.stderr)
        return []
    except OSError:
        return []
    lines = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    return [(series.partition("{")[0], dict(_LABEL.findall(series)), float(value)) for series, _, value in lines]


def smi(query: str) -> str:
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
