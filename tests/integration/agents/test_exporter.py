"""Tests the exporter as a process, with NVML's real bindings and the fake NVML."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from agents.telemetry.device import Device, Fault, Occupancy, Process, Scan
from agents.telemetry.reading import parse
from tests.support.api_server import ServedOverTls
from tests.support.fake_cluster import T4
from tests.support.http_get import get
from tests.support.paths import ROOT
from tests.support.shipped_exporter import shipped_exporter
from tests.support.waiting import PATIENCE_SECONDS, becomes, eventually
from toolchain.cluster.fake_nvml import FakeNvml

GIB = 2**30
SLICE = "/apis/resource.k8s.io/v1/resourceslices/gpumem.viktorbarzin.me-k8s-node1"
T4_LINE = f"device GPU-11111111-aaaa {15 * GIB} {4 * GIB} {11 * GIB}"
T4_DEVICE = Device(gpu=0, uuid="GPU-11111111-aaaa", total_bytes=15 * GIB, used_bytes=11 * GIB, free_bytes=4 * GIB)
SECOND_LINE = f"device GPU-2 {24 * GIB} {24 * GIB} 0"
SECOND = Device(gpu=1, uuid="GPU-2", total_bytes=24 * GIB, used_bytes=0, free_bytes=24 * GIB)
# The dynamic loader reads LD_LIBRARY_PATH only when a process starts.
PROGRAM = """
import sys
from agents.exporter.nvml import Nvml, NvmlError
nvml = Nvml()
for _ in sys.stdin:
    try: print(nvml.read(), flush=True)
    except NvmlError as error: print('refused:', error, flush=True)
"""


def readings(nvml: FakeNvml, *shown: tuple[str, ...], statuses: tuple[int, ...] = ()) -> list[str]:
    found = []
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, **nvml.environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for lines, status in zip(shown, statuses or (0,) * len(shown), strict=True):
            nvml.show(*lines, status=status)
            print(file=process.stdin, flush=True)
            found.append(process.stdout.readline().rstrip("\n"))
        process.stdin.close()
    return found


def of_t4(*processes: Process, fault: Fault | None = None) -> Scan:
    return Scan((Occupancy(replace(T4_DEVICE, fault=fault), processes),))


READINGS: dict[str, tuple[tuple[str, ...], Scan]] = {
    "two devices, a very large process": (
        ("compute 7 1000", "compute 8 18446744073709551614", SECOND_LINE, "graphics 9 5"),
        Scan(
            (
                Occupancy(T4_DEVICE, (Process(7, 1000), Process(8, 2**64 - 2))),
                Occupancy(SECOND, (Process(9, 5),)),
            )
        ),
    ),
    "a process that computes, draws and shares counts once": (
        ("compute 7 1000", "graphics 7 1000", "mps 7 1000", "graphics 8 20", "mps 9 30"),
        of_t4(Process(7, 1000), Process(8, 20), Process(9, 30)),
    ),
    "a use that is not reported is unknown": (
        ("compute 7 N/A", "compute 8 5", "graphics 8 N/A"),
        of_t4(Process(7, None), Process(8, None)),
    ),
    "a device that can neither draw nor share": (
        ("unsupported graphics", "unsupported mps", "compute 7 1000"),
        of_t4(Process(7, 1000)),
    ),
    "one of two devices fails": (
        (SECOND_LINE, "broken 15"),
        Scan((Occupancy(T4_DEVICE),), {1: "gpu 1: NVML: GPU is lost"}),
    ),
    "MIG, whose figures NVML refuses": (
        ("broken 4", "mig"),
        Scan(
            (),
            {
                0: "gpu 0: is in MIG mode, where NVML gives a whole device's figures to privileged callers alone; turn "
                "MIG off for its pool"
            },
        ),
    ),
    "no memory fault is known": ((), of_t4()),
    "pages wait for a reset": (("retiring",), of_t4(fault=Fault.PAGES_TO_RETIRE)),
    "rows were remapped": (("remapping fine",), of_t4()),
    "a row could not be remapped": (("remapping failed",), of_t4(fault=Fault.ROW_REMAPPING_FAILED)),
}


@pytest.mark.parametrize(("lines", "scan"), READINGS.values(), ids=READINGS)
def test_devices_and_processes_are_read_through_the_library(nvml: FakeNvml, lines: tuple[str, ...], scan: Scan) -> None:
    assert readings(nvml, (T4_LINE, *lines)) == [str(scan)]


def test_a_failing_call_is_an_error_with_nvmls_words_and_the_next_reading_recovers(nvml: FakeNvml) -> None:
    failed, recovered = readings(nvml, (T4_LINE,), (T4_LINE,), statuses=(15, 0))
    assert failed == str(Scan((), {0: "gpu 0: NVML: GPU is lost"}))
    assert recovered == str(of_t4())


def test_a_node_that_shows_no_device_is_an_error(nvml: FakeNvml) -> None:
    assert readings(nvml, ()) == [
        "refused: no device is visible; the pod needs NVIDIA_VISIBLE_DEVICES all and a working driver"
    ]


def test_a_missing_library_says_what_the_pod_needs(tmp_path: Path) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has an NVIDIA driver")
    (refused,) = readings(FakeNvml(tmp_path, tmp_path / "card"), ())
    assert refused == "refused: libnvidia-ml.so.1 cannot be loaded; the pod needs runtimeClassName nvidia"


def test_the_shipped_exporter_serves_the_card_the_ledger_and_the_cards_loss(
    node_zipapp: Path, nvml: FakeNvml, served: ServedOverTls
) -> None:
    nvml.show(T4_LINE)
    served.cluster.watches_last = True
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    with shipped_exporter(served, node_zipapp, nvml) as shipped:

        def metrics() -> tuple[int, str]:
            return get(f"http://127.0.0.1:{shipped.port}/metrics")

        def shows(status: int, text: str) -> None:
            eventually(lambda: (found := metrics())[0] == status and text in found[1], state=metrics)

        shows(200, f'gpu_pool_memory_advertised_bytes{{pool="t4"}} {14000 * 2**20}\n')
        assert parse(metrics()[1]).devices == (T4_DEVICE,)
        becomes(lambda: get(f"http://127.0.0.1:{shipped.port}/healthz"), (200, "ok\n"))
        nvml.show(T4_LINE, f"compute {os.getpid()} N/A")
        shows(200, f'gpu_memory_unknown_processes{{gpu="0",uuid="{T4_DEVICE.uuid}"}} 1\n')
        nvml.show(T4_LINE, status=15)
        shows(503, "gpu 0: NVML: GPU is lost\n")
        published = partial(served.cluster.objects.get, SLICE)
        eventually(lambda: "taints" in json.dumps(published()), state=published)
        shipped.process.send_signal(signal.SIGTERM)
        assert shipped.process.wait(timeout=PATIENCE_SECONDS) == 0
