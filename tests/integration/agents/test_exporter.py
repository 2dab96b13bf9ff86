"""The exporter: a real shared object through NVML's own bindings, a real socket, and no empty success."""

import http.client
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agents.exporter.attribution import DeviceUse, NodeUse
from agents.exporter.main import Gauge
from agents.exporter.nvml import NvmlError
from agents.exporter.pod_names import OwnNode, Recycle, Registrar, Registry
from agents.node.cgroup import Container
from agents.node.pods import NodePod, Roster
from agents.runtime import exposition
from agents.runtime.log import Log
from agents.telemetry.device import Device, Fault, Occupancy, Process, Scan, Survey
from agents.telemetry.reading import parse
from tenancy.ledger import Ledger, Seat
from tenancy.units import MIB
from tests.support.api_server import ServedOverTls
from tests.support.exporters import gauge
from tests.support.fake_cluster import DOMAIN, LABELS, T4, FakeTime
from tests.support.fixtures import LOADED_SECONDS
from tests.support.paths import ROOT
from tests.support.shipped_exporter import Shipped, shipped_exporter
from toolchain.cluster.fake_nvml import FakeNvml

GIB = 2**30
SLICE = "/apis/resource.k8s.io/v1/resourceslices/gpumem.viktorbarzin.me-k8s-node1"
T4_LINE = f"device GPU-11111111-aaaa {15 * GIB} {4 * GIB} {11 * GIB}"
T4_DEVICE = Device(gpu=0, uuid="GPU-11111111-aaaa", total_bytes=15 * GIB, used_bytes=11 * GIB, free_bytes=4 * GIB)
IDLE = DeviceUse(device=T4_DEVICE, used_bytes={})


def readings(
    nvml: FakeNvml,
    *shown: tuple[str, ...],
    statuses: tuple[int, ...] = (),
) -> list[str]:
    """What one Nvml reads, or raises, while the library shows one thing after the other. A process of its own, since
    the dynamic loader looks at LD_LIBRARY_PATH when a process starts."""
    program = (
        "import sys\nfrom agents.exporter.nvml import Nvml, NvmlError\nnvml = Nvml()\n"
        "for _ in sys.stdin:\n"
        "    try: print(nvml.read(), flush=True)\n"
        "    except NvmlError as error: print('refused:', error, flush=True)\n"
    )
    found = []
    with subprocess.Popen(
        [sys.executable, "-c", program],
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


def test_every_device_and_process_is_read_through_the_library(nvml: FakeNvml) -> None:
    second = f"device GPU-2 {24 * GIB} {24 * GIB} 0"
    (found,) = readings(nvml, (T4_LINE, "compute 7 1000", "compute 8 18446744073709551614", second, "graphics 9 5"))
    empty = Device(gpu=1, uuid="GPU-2", total_bytes=24 * GIB, used_bytes=0, free_bytes=24 * GIB)
    assert found == str(
        Scan(
            (
                Occupancy(T4_DEVICE, (Process(7, 1000), Process(8, 2**64 - 2))),
                Occupancy(empty, (Process(9, 5),)),
            )
        )
    )


def test_a_process_that_computes_and_draws_and_shares_counts_once(nvml: FakeNvml) -> None:
    listed = ("compute 7 1000", "graphics 7 1000", "mps 7 1000", "graphics 8 20", "mps 9 30")
    (found,) = readings(nvml, (T4_LINE, *listed))
    assert found == str(Scan((Occupancy(T4_DEVICE, (Process(7, 1000), Process(8, 20), Process(9, 30))),)))


def test_a_use_that_nvml_does_not_tell_is_unknown_and_not_0(nvml: FakeNvml) -> None:
    (found,) = readings(nvml, (T4_LINE, "compute 7 N/A", "compute 8 5", "graphics 8 N/A"))
    assert found == str(Scan((Occupancy(T4_DEVICE, (Process(7, None), Process(8, None))),)))


def test_a_device_that_cannot_draw_or_share_has_no_such_processes(nvml: FakeNvml) -> None:
    (found,) = readings(nvml, (T4_LINE, "unsupported graphics", "unsupported mps", "compute 7 1000"))
    assert found == str(Scan((Occupancy(T4_DEVICE, (Process(7, 1000),)),)))


def test_a_failing_call_is_an_error_with_nvmls_words_and_the_next_reading_recovers(nvml: FakeNvml) -> None:
    failed, recovered = readings(nvml, (T4_LINE,), (T4_LINE,), statuses=(15, 0))
    assert failed == str(Scan((), {0: "gpu 0: NVML: GPU is lost"}))
    assert recovered == str(Scan((Occupancy(T4_DEVICE),)))


def test_one_device_that_fails_is_told_of_beside_the_others(nvml: FakeNvml) -> None:
    lost = f"device GPU-2 {24 * GIB} {24 * GIB} 0"
    (found,) = readings(nvml, (T4_LINE, lost, "broken 15"))
    assert found == str(Scan((Occupancy(T4_DEVICE),), {1: "gpu 1: NVML: GPU is lost"}))


def test_a_device_that_mig_divides_says_so(nvml: FakeNvml) -> None:
    """NVML refuses its figures to a caller without privileges, which ours is."""
    (found,) = readings(nvml, (T4_LINE, "broken 4", "mig"))
    assert found == str(
        Scan(
            (),
            {
                0: "gpu 0: is in MIG mode, where NVML gives a whole device's figures to privileged callers alone; turn "
                "MIG off for its pool"
            },
        )
    )


HEALTH: dict[str, tuple[tuple[str, ...], Fault | None]] = {
    "it knows neither": ((), None),
    "pages wait for a reset": (("retiring",), Fault.PAGES_TO_RETIRE),
    "rows were remapped": (("remapping fine",), None),
    "a row could not be remapped": (("remapping failed",), Fault.ROW_REMAPPING_FAILED),
}


@pytest.mark.parametrize("case", HEALTH)
def test_a_devices_memory_is_at_fault_when_it_cannot_mend_itself(nvml: FakeNvml, case: str) -> None:
    lines, fault = HEALTH[case]
    (found,) = readings(nvml, (T4_LINE, *lines))
    assert found == str(Scan((Occupancy(replace(T4_DEVICE, fault=fault)),)))


def test_a_node_that_shows_no_device_is_an_error(nvml: FakeNvml) -> None:
    assert readings(nvml, ()) == [
        "refused: no device is visible; the pod needs NVIDIA_VISIBLE_DEVICES all and a working driver"
    ]


def test_a_missing_library_says_what_the_pod_needs(tmp_path: Path) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has an NVIDIA driver")
    (refused,) = readings(FakeNvml(tmp_path, tmp_path / "card"), ())
    assert refused == "refused: libnvidia-ml.so.1 cannot be loaded; the pod needs runtimeClassName nvidia"


class Readings:
    """What NVML gives, one after the other."""

    def __init__(self, *readings: tuple[DeviceUse, ...] | NodeUse | NvmlError) -> None:
        self.left = list(readings)

    def __call__(self) -> NodeUse:
        reading = self.left.pop(0)
        if isinstance(reading, NvmlError):
            raise reading
        return reading if isinstance(reading, NodeUse) else NodeUse(reading)


def reading(now: FakeTime, *readings: tuple[DeviceUse, ...] | NodeUse | NvmlError) -> Gauge:
    log = Log("test", io.StringIO())
    registrar = Registrar(api=None, node="", ledger_namespace="", clock=now.clock(), log=log)
    return Gauge(read=Readings(*readings), registrar=registrar, clock=now.clock(), interval_seconds=5)


def test_a_fresh_reading_is_served_and_the_reader_believes_it() -> None:
    now = FakeTime()
    shown = reading(now, (IDLE,))
    shown.sample()
    now.seconds = 2.5
    status, body = shown.metrics()
    assert status == http.client.OK
    assert parse(body).devices == (T4_DEVICE,)
    assert "gpu_memory_sample_age_seconds 2.5\n" in body


def test_before_the_first_reading_there_is_no_success() -> None:
    assert reading(FakeTime()).metrics() == (503, "no reading yet\n")


def test_a_failed_reading_is_no_success_and_the_former_one_is_not_served() -> None:
    shown = reading(FakeTime(), (IDLE,), NvmlError("GPU is lost"), (IDLE,))
    shown.sample()
    shown.sample()
    assert shown.metrics() == (503, "GPU is lost\n")
    assert shown.health()[0] == http.client.OK
    shown.sample()
    assert shown.metrics()[0] == http.client.OK


LOST = {1: "gpu 1: NVML: GPU is lost"}


def test_one_lost_device_of_two_is_named_and_the_other_is_served() -> None:
    shown = reading(FakeTime(), NodeUse((IDLE,), LOST), NodeUse((), LOST))
    shown.sample()
    status, body = shown.metrics()
    assert status == http.client.OK
    found = parse(body)
    assert (found.devices, [str(each) for each in found.lost]) == (
        (T4_DEVICE,),
        ["gpu 1: its exporter cannot read it"],
    )
    assert shown.last.survey == Survey(devices=(T4_DEVICE,), unreadable=(1,))
    shown.sample()
    assert shown.metrics() == (503, "gpu 1: NVML: GPU is lost\n")


def test_a_reading_that_hangs_makes_metrics_and_health_fail() -> None:
    now = FakeTime()
    shown = reading(now, (IDLE,))
    shown.sample()
    now.seconds = 15.0
    assert shown.metrics()[0] == http.client.OK
    now.seconds = 16.0
    stale = (503, "the last NVML reading is 16 s old, the limit is 15 s\n")
    assert shown.metrics() == stale
    assert shown.health() == stale


MODEL, PROXY, NEW = Container("uid-chat", "aaa"), Container("uid-chat", "bbb"), Container("uid-new", "ccc")
CHAT = NodePod(
    namespace="chat",
    name="chat-0",
    uid="uid-chat",
    group_uid="uid-chat",
    containers={"aaa": "model", "bbb": "proxy"},
    declared_mib=5000,
)
IDLE_POD = NodePod(namespace="vision", name="idle", uid="uid-idle", group_uid="uid-idle", declared_mib=2000)
UNDECLARED = NodePod(namespace="games", name="games-0", uid="uid-games", group_uid="uid-games")
SEATS = (
    Seat(name="chat", tenant="chat", pool="t4", gpumem_mib=5000),
    Seat(name="vision", tenant="vision", pool="t4", gpumem_mib=1500, replicas=2),
)
LEDGER = Ledger(domain=DOMAIN, pools=(T4,), seats=SEATS)
HERE = OwnNode(uid="uid-node", labels=LABELS)
REGISTRY = Registry(Roster((CHAT, IDLE_POD, UNDECLARED)), LEDGER, node=HERE)


def mib_of(body: str, name: str) -> dict[tuple[str, ...], float]:
    """MiB by the values of the labels, in their order."""
    found = [sample for sample in exposition.parse(body) if sample.name == name]
    return {tuple(sample.labels.values()): sample.value / MIB for sample in found}


def test_a_containers_use_has_the_names_of_its_pod_and_the_device() -> None:
    use = DeviceUse(device=T4_DEVICE, used_bytes={MODEL: 4000 * MIB, PROXY: 200 * MIB, NEW: 100 * MIB})
    _, body = gauge(use, registry=REGISTRY).metrics()
    assert mib_of(body, "gpu_pod_memory_used_bytes") == {
        ("chat", "chat-0", "uid-chat", "model", "0", T4_DEVICE.uuid): 4000,
        ("chat", "chat-0", "uid-chat", "proxy", "0", T4_DEVICE.uuid): 200,
        ("", "", "uid-new", "", "0", T4_DEVICE.uuid): 100,
    }
    labels = next(s.labels for s in exposition.parse(body) if s.name == "gpu_pod_memory_used_bytes")
    assert list(labels) == ["namespace", "pod", "pod_uid", "container", "gpu", "uuid"]
    assert mib_of(body, "gpu_memory_unattributed_bytes") == {("0", T4_DEVICE.uuid): 11 * 1024 - 4300}


def test_processes_of_unknown_use_are_told_of() -> None:
    _, body = gauge(DeviceUse(device=T4_DEVICE, used_bytes={}, unknown_processes=2)).metrics()
    assert f'gpu_memory_unknown_processes{{gpu="0",uuid="{T4_DEVICE.uuid}"}} 2\n' in body
    assert mib_of(body, "gpu_pod_memory_used_bytes") == {}


def test_what_a_pod_declared_stands_beside_what_it_uses_beyond_it_on_all_devices() -> None:
    second = DeviceUse(device=Device(**{**vars(T4_DEVICE), "gpu": 1, "uuid": "GPU-2"}), used_bytes={PROXY: 1500 * MIB})
    use = DeviceUse(device=T4_DEVICE, used_bytes={MODEL: 4000 * MIB, NEW: 9000 * MIB})
    _, body = gauge(use, second, registry=REGISTRY).metrics()
    chat, idle = ("chat", "chat-0", "uid-chat"), ("vision", "idle", "uid-idle")
    assert mib_of(body, "gpu_pod_memory_declared_bytes") == {chat: 5000, idle: 2000}
    assert mib_of(body, "gpu_pod_memory_over_bytes") == {chat: 500, idle: 0}


def test_the_ledger_is_served_by_pool_and_by_seat() -> None:
    _, body = gauge(IDLE, registry=REGISTRY).metrics()
    assert mib_of(body, "gpu_pool_memory_advertised_bytes") == {("t4",): 14000}
    assert mib_of(body, "gpu_pool_memory_promised_bytes") == {("t4",): 8000}
    assert mib_of(body, "gpu_pool_memory_floor_bytes") == {("t4",): 1536}
    assert mib_of(body, "gpu_seat_memory_bytes") == {("t4", "chat", "chat"): 5000, ("t4", "vision", "vision"): 3000}


def test_of_the_ledger_a_node_serves_its_own_pool() -> None:
    """A thousand seats on two hundred nodes would be as many series of each other."""
    other = replace(T4, name="a10", node_selector={"gpu": "a10"})
    seats = tuple(Seat(name=f"s{number}", tenant="t", pool="a10", gpumem_mib=1) for number in range(50))
    ledger = replace(LEDGER, pools=(T4, other), seats=(*SEATS, *seats))
    _, body = gauge(IDLE, registry=replace(REGISTRY, ledger=ledger)).metrics()
    assert set(mib_of(body, "gpu_pool_memory_floor_bytes")) == {("t4",)}
    assert len(mib_of(body, "gpu_seat_memory_bytes")) == len(SEATS)
    for node in (None, replace(HERE, labels={})):
        _, body = gauge(IDLE, registry=replace(REGISTRY, ledger=ledger, node=node)).metrics()
        assert mib_of(body, "gpu_pool_memory_floor_bytes") == {}


def test_the_watchdogs_recycles_of_the_last_hour_are_counted_together_and_by_tenant() -> None:
    now = datetime.now(UTC)
    told = (("chat", 1), ("chat", 59), ("vision", 59), ("vision", 61))
    recycled = tuple(Recycle(now - timedelta(minutes=ago), tenant) for tenant, ago in told)
    body = gauge(IDLE, registry=replace(REGISTRY, recycled=recycled)).metrics()[1]
    assert "\ngpu_watchdog_recycles_last_hour 3\n" in body
    assert '\ngpu_watchdog_tenant_recycles_last_hour{tenant="chat"} 2\n' in body
    assert '\ngpu_watchdog_tenant_recycles_last_hour{tenant="vision"} 1\n' in body
    assert "gpu_watchdog_recycles" not in gauge(IDLE, registry=REGISTRY).metrics()[1]


def test_without_an_answer_of_the_api_the_devices_are_served_and_how_long_it_is_away() -> None:
    use = DeviceUse(device=T4_DEVICE, used_bytes={MODEL: 4000 * MIB})
    status, body = gauge(use, age_seconds=33).metrics()
    assert status == http.client.OK
    assert mib_of(body, "gpu_pod_memory_used_bytes") == {("", "", "uid-chat", "", "0", T4_DEVICE.uuid): 4000}
    assert "gpu_memory_exporter_api_age_seconds 33" in body


@pytest.fixture
def shipped(node_zipapp: Path, nvml: FakeNvml, served: ServedOverTls) -> Iterator[Shipped]:
    nvml.show(T4_LINE)
    served.cluster.watches_last = True
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    with shipped_exporter(served, node_zipapp, nvml) as found:
        yield found


def get(port: int, path: str) -> tuple[int, str]:
    """Asks until the server listens; a status other than 200 is an answer too."""
    deadline = time.monotonic() + 60
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


def eventually(port: int, status: int, shows: str = "") -> str:
    """The body of /metrics once it answers with this status and shows that text."""
    deadline = time.monotonic() + 60
    while True:
        found, body = get(port, "/metrics")
        if found == status and shows in body:
            return body
        assert time.monotonic() < deadline, body
        time.sleep(0.05)


def test_the_shipped_exporter_serves_the_card_the_ledger_and_the_cards_loss(
    shipped: Shipped, nvml: FakeNvml, served: ServedOverTls
) -> None:
    port = shipped.port
    body = eventually(port, 200, shows="gpu_pool_memory_advertised_bytes")
    assert parse(body).devices == (T4_DEVICE,)
    assert mib_of(body, "gpu_pool_memory_advertised_bytes") == {("t4",): 14000}
    assert get(port, "/healthz") == (200, "ok\n")
    assert get(port, "/nothing")[0] == 404
    nvml.show(T4_LINE, f"compute {os.getpid()} N/A")
    assert eventually(port, 200, shows=f'gpu_memory_unknown_processes{{gpu="0",uuid="{T4_DEVICE.uuid}"}} 1\n')
    nvml.show(T4_LINE, status=15)
    assert eventually(port, 503) == "gpu 0: NVML: GPU is lost\n"
    deadline = time.monotonic() + LOADED_SECONDS
    while "taints" not in json.dumps(served.cluster.objects.get(SLICE)):
        assert time.monotonic() < deadline, served.cluster.requests[-3:]
        time.sleep(0.05)
    shipped.process.send_signal(signal.SIGTERM)
    assert shipped.process.wait(timeout=LOADED_SECONDS) == 0
