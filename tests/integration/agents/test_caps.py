"""Tests how the exporter reads the GPU memory limits of control groups through NVML's bindings. The driver counts GPU
memory in the cgroup controller misc or dmem.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from toolchain.cluster import fake_nvml
from toolchain.cluster.fake_nvml import FakeNvml

GIB = 2**30
DEVICE = f"device GPU-0 {16 * GIB} {16 * GIB} 0"
# NVML's bindings never unload a library, so each case runs in a new process.
_PROGRAM = """
import ctypes, sys
from agents.exporter.nvml import Nvml
nvml = Nvml()
nvml.read()
import pynvml
def set(directory, gib):
    limits = pynvml.c_nvmlSetMemoryLimits_v1_t(directory.encode(), gib << 30, gib << 30)
    try:
        pynvml.nvmlDeviceSetMemoryLimits_v1(pynvml.nvmlDeviceGetHandleByUUID("GPU-0"), limits)
    except pynvml.NVMLError as error:
        return str(error)
def charge(directory, gib):
    return pynvml.nvmlLib.fake_charge(b"GPU-0", directory.encode(), ctypes.c_longlong(gib << 30))
def get(directory):
    found = nvml.limit("GPU-0", directory)
    return str(found) if isinstance(found, str) else found >> 30
root = sys.argv[2]
print(eval(sys.argv[1]))
"""


def said(nvml: FakeNvml, expression: str, root: Path = Path("/g")) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, expression, str(root)],
        cwd=ROOT,
        env={**os.environ, **nvml.environ},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_by_the_drivers_own_accounting_the_nearest_limit_counts_and_none_is_not_supported(nvml: FakeNvml) -> None:
    nvml.show(DEVICE, "accounting misc")
    steps = "[get('/g/pod/c'), set('/g/pod', 8), get('/g/pod/c'), set('/g/pod/c', 5), get('/g/pod/c'), get('/g/other')]"
    assert said(nvml, steps) == "['no-limit', None, 8, None, 5, 'no-limit']"


def test_by_dmem_a_group_without_the_file_answers_with_the_next_above_and_cannot_be_set(
    nvml: FakeNvml, tmp_path: Path
) -> None:
    pod = tmp_path / "pod"
    (pod / "c").mkdir(parents=True)
    (pod / "dmem.max").write_text("max\n")
    nvml.show(DEVICE, "accounting dmem")
    steps = "[get(root + '/c'), set(root + '/c', 5), set(root, 8), get(root + '/c')]"
    assert said(nvml, steps, pod) == "['no-limit', 'Not Found', None, 8]"


@pytest.mark.parametrize(
    ("lines", "answer"),
    [((DEVICE,), "no-limit"), ((DEVICE, "accounting misc", "mig"), "mig")],
    ids=["a driver that does not account", "MIG"],
)
def test_a_device_that_cannot_be_limited_is_never_capped(nvml: FakeNvml, lines: tuple[str, ...], answer: str) -> None:
    nvml.show(*lines)
    assert said(nvml, "get('/g/c')") == answer


def test_a_driver_without_the_call_is_too_old(tmp_path: Path) -> None:
    if not fake_nvml.can_build():
        pytest.skip("NO C COMPILER: an old driver is not tested here")
    fake_nvml.build(tmp_path, old_driver=True)
    nvml = FakeNvml(tmp_path, tmp_path / "card")
    nvml.show(DEVICE)
    assert said(nvml, "get('/g/c')") == "driver-too-old"
