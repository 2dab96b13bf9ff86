"""The exporter: a real shared object through ctypes, a real socket, and no empty success."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents import telemetry
from agents.exporter import Gauge
from agents.nvml import LIBRARY, Device, Nvml, NvmlError
from tests.agents.cluster import FakeTime

GIB = 2**30
T4_LINE = f"GPU-11111111-aaaa {15 * GIB} {4 * GIB} {11 * GIB}"
T4_DEVICE = Device(gpu=0, uuid="GPU-11111111-aaaa", total_bytes=15 * GIB, used_bytes=11 * GIB, free_bytes=4 * GIB)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("NO C COMPILER: the ctypes path of the exporter is not tested here")
    path = tmp_path_factory.mktemp("nvml") / LIBRARY
    source = Path(__file__).with_name("fake_nvml.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", path, source], check=True)
    return path


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes what the fake library reports."""
    script = tmp_path / "card"
    monkeypatch.setenv("FAKE_NVML", str(script))

    def show(*devices: str, status: int = 0) -> None:
        script.write_text("\n".join((str(status), *devices)) + "\n")

    return show


def test_every_device_is_read_through_the_library(library: Path, card: Callable[..., None]) -> None:
    card(T4_LINE, f"GPU-2 {24 * GIB} {24 * GIB} 0")
    first, second = Nvml(str(library)).devices()
    assert first == T4_DEVICE
    assert (second.gpu, second.uuid, second.free_bytes) == (1, "GPU-2", 24 * GIB)


def test_a_failing_call_is_an_error_with_nvmls_words_and_the_next_reading_recovers(
    library: Path, card: Callable[..., None]
) -> None:
    nvml = Nvml(str(library))
    card(T4_LINE, status=15)
    with pytest.raises(NvmlError, match=r"nvmlDeviceGetMemoryInfo: GPU is lost \(15\)"):
        nvml.devices()
    card(T4_LINE)
    assert nvml.devices() == (T4_DEVICE,)


def test_a_missing_library_says_what_the_pod_needs() -> None:
    with pytest.raises(NvmlError, match=r"cannot be loaded: .*; the pod needs runtimeClassName nvidia"):
        Nvml("libnvidia-ml-is-not-here.so.1").devices()


class Readings:
    """What NVML gives, one after the other."""

    def __init__(self, *readings: tuple[Device, ...] | NvmlError) -> None:
        self.left = list(readings)

    def __call__(self) -> tuple[Device, ...]:
        reading = self.left.pop(0)
        if isinstance(reading, NvmlError):
            raise reading
        return reading


def gauge(now: FakeTime, *readings: tuple[Device, ...] | NvmlError) -> Gauge:
    return Gauge(read=Readings(*readings), clock=now.clock(), interval_seconds=5)


def test_a_fresh_reading_is_served_and_the_reader_believes_it() -> None:
    now = FakeTime()
    shown = gauge(now, (T4_DEVICE,))
    shown.sample()
    now.seconds = 2.5
    status, body = shown.metrics()
    assert status == http.client.OK
    assert telemetry.devices(body) == (T4_DEVICE,)
    assert "gpu_memory_sample_age_seconds 2.5\n" in body


def test_before_the_first_reading_there_is_no_success() -> None:
    assert gauge(FakeTime()).metrics() == (503, "no reading yet\n")


def test_a_failed_reading_is_no_success_and_the_former_one_is_not_served() -> None:
    shown = gauge(FakeTime(), (T4_DEVICE,), NvmlError("GPU is lost"), (T4_DEVICE,))
    shown.sample()
    shown.sample()
    assert shown.metrics() == (503, "GPU is lost\n")
    assert shown.health()[0] == http.client.OK
    shown.sample()
    assert shown.metrics()[0] == http.client.OK


def test_a_reading_that_hangs_makes_metrics_and_health_fail() -> None:
    now = FakeTime()
    shown = gauge(now, (T4_DEVICE,))
    shown.sample()
    now.seconds = 15.0
    assert shown.metrics()[0] == http.client.OK
    now.seconds = 16.0
    stale = (503, "the last NVML reading is 16 s old, the limit is 15 s\n")
    assert shown.metrics() == stale
    assert shown.health() == stale


def test_a_node_that_shows_no_device_is_an_error(library: Path, card: Callable[..., None]) -> None:
    card()
    with pytest.raises(NvmlError, match="no device is visible"):
        Nvml(str(library)).devices()


@pytest.fixture
def process(zipapp: Path, library: Path, card: Callable[..., None]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The real exporter, from the zipapp, on a free port."""
    card(T4_LINE)
    with socket.create_server(("", 0)) as probe:
        port = probe.getsockname()[1]
    environ = {**os.environ, "PORT": str(port), "INTERVAL_SECONDS": "1", "LD_LIBRARY_PATH": str(library.parent)}
    with subprocess.Popen(
        [sys.executable, "-I", str(zipapp), "exporter"], env=environ, stdout=subprocess.PIPE, text=True
    ) as started:
        yield started, port
        started.kill()


def get(port: int, path: str) -> tuple[int, str]:
    """Asks until the server listens; a status other than 200 is an answer too."""
    deadline = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def eventually(port: int, status: int) -> str:
    """The body of /metrics once it answers with this status."""
    deadline = time.monotonic() + 20
    while True:
        found, body = get(port, "/metrics")
        if found == status:
            return body
        assert time.monotonic() < deadline, body
        time.sleep(0.05)


def test_the_shipped_exporter_serves_the_card_and_its_loss(
    process: tuple[subprocess.Popen[str], int], card: Callable[..., None]
) -> None:
    started, port = process
    assert telemetry.devices(eventually(port, 200)) == (T4_DEVICE,)
    assert get(port, "/healthz") == (200, "ok\n")
    assert get(port, "/nothing")[0] == 404
    card(T4_LINE, status=15)
    assert eventually(port, 503) == "nvmlDeviceGetMemoryInfo: GPU is lost (15)\n"
    began = time.monotonic()
    started.send_signal(signal.SIGTERM)
    assert started.wait(timeout=10) == 0
    assert time.monotonic() - began < 2
