"""Tests that the exporter never answers with status 200 if its metrics are empty or old."""

import http.client
import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from agents.exporter.attribution import DeviceUse, NodeUse
from agents.exporter.main import DeviceReader
from agents.exporter.registry import Recycle, Registry, RegistryInformer
from agents.kube.nodes import Node
from agents.node.cgroup import Container
from agents.node.pods import NodePod, NodePods
from agents.runtime import exposition
from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from agents.telemetry.device import Survey
from agents.telemetry.reading import parse
from tenancy.ledger import Ledger, Seat
from tenancy.units import MIB
from tests.support import node_pods
from tests.support.exporters import card, device_reader
from tests.support.fake_cluster import DOMAIN, LABELS, T4, FakeTime
from tests.support.mirrors import mirror

CARD = card(4096)
IDLE = DeviceUse(device=CARD, used_bytes={})
LOST = {1: "gpu 1: NVML: GPU is lost"}


def reading(now: FakeTime, *readings: NodeUse | str) -> DeviceReader:
    left = list(readings)

    def read() -> NodeUse:
        if isinstance(found := left.pop(0), str):
            raise AgentError(found)
        return found

    clock, log = now.clock(), Log("test", io.StringIO())
    registry = RegistryInformer(api=None, node="", ledger_namespace="", clock=clock, log=log)
    return DeviceReader(read=read, registry=registry, clock=clock, interval_seconds=5)


def test_a_failed_reading_is_no_success_and_the_former_one_is_not_served() -> None:
    shown = reading(FakeTime(), NodeUse((IDLE,)), "GPU is lost", NodeUse((IDLE,)))
    shown.sample()
    shown.sample()
    assert (shown.metrics(), shown.survey) == ((503, "GPU is lost\n"), None)
    assert shown.health()[0] == http.client.OK
    shown.sample()
    assert shown.metrics()[0] == http.client.OK


def test_one_lost_device_of_two_is_named_and_the_other_is_served() -> None:
    shown = reading(FakeTime(), NodeUse((IDLE,), LOST), NodeUse((), LOST))
    shown.sample()
    status, body = shown.metrics()
    found = parse(body)
    assert (status, found.devices) == (http.client.OK, (CARD,))
    assert [str(each) for each in found.lost] == ["gpu 1: its exporter cannot read it"]
    assert shown.survey == Survey(devices=(CARD,), unreadable=(1,))
    shown.sample()
    assert shown.metrics() == (503, "gpu 1: NVML: GPU is lost\n")


def test_a_reading_that_hangs_makes_metrics_and_health_fail() -> None:
    now = FakeTime()
    shown = reading(now, NodeUse((IDLE,)))
    shown.sample()
    now.seconds = 15.0
    assert shown.metrics()[0] == http.client.OK
    now.seconds = 16.0
    stale = (503, "the last NVML reading is 16 s old, the limit is 15 s\n")
    assert (shown.metrics(), shown.health()) == (stale, stale)


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
HERE = Node(name="n", uid="uid-node", labels=LABELS)
REGISTRY = Registry(NodePods((CHAT, IDLE_POD, UNDECLARED)), LEDGER, node=HERE)


def mib_of(name: str, *uses: DeviceUse, registry: Registry = REGISTRY) -> dict[tuple[str, ...], float]:
    found = exposition.parse(device_reader(*uses, registry=registry).metrics()[1])
    return {tuple(sample.labels.values()): sample.value / MIB for sample in found if sample.name == name}


def test_a_pods_declaration_is_next_to_its_use_beyond_it_on_all_devices() -> None:
    second = DeviceUse(device=card(4096, gpu=1), used_bytes={PROXY: 1500 * MIB})
    use = DeviceUse(device=CARD, used_bytes={MODEL: 4000 * MIB, NEW: 9000 * MIB})
    chat, idle = ("chat", "chat-0", "uid-chat"), ("vision", "idle", "uid-idle")
    assert mib_of("gpu_pod_memory_declared_bytes", use, second) == {chat: 5000, idle: 2000}
    assert mib_of("gpu_pod_memory_over_bytes", use, second) == {chat: 500, idle: 0}


def test_a_pod_on_two_devices_is_over_where_it_uses_more_than_half_of_its_declaration() -> None:
    second = DeviceUse(device=card(4096, gpu=1), used_bytes={MODEL: 1000 * MIB})
    first = DeviceUse(device=CARD, used_bytes={MODEL: 2600 * MIB, PROXY: 200 * MIB})
    pair = replace(CHAT, uuids=(first.device.uuid, second.device.uuid))
    over = mib_of("gpu_pod_memory_over_bytes", first, second, registry=Registry(NodePods((pair,)), LEDGER, node=HERE))
    assert over == {("chat", "chat-0", "uid-chat"): 300}


def test_memory_is_shown_with_the_pod_whose_uid_its_control_group_bears_and_with_no_other() -> None:
    metadata = {"namespace": "thief", "name": "t", "uid": "uid-thief", **mirror("uid-chat", "k8s-node1")}
    found = node_pods.read(node_pods.CHAT, {**node_pods.CHAT, "metadata": metadata})
    use = DeviceUse(device=CARD, used_bytes={MODEL: 9000 * MIB})
    over = mib_of("gpu_pod_memory_over_bytes", use, registry=Registry(found))
    assert {uid: mib for (_, _, uid), mib in over.items()} == {"uid-chat": 4000, "uid-thief": 0}
    used = mib_of("gpu_pod_memory_used_bytes", use, registry=Registry(found))
    assert {uid for _, _, uid, *_ in used} == {"uid-chat"}


def test_the_ledger_is_served_by_pool_and_by_seat() -> None:
    assert mib_of("gpu_pool_memory_advertised_bytes", IDLE) == {("t4",): 14000}
    assert mib_of("gpu_pool_memory_promised_bytes", IDLE) == {("t4",): 8000}
    assert mib_of("gpu_pool_memory_floor_bytes", IDLE) == {("t4",): 1536}
    assert mib_of("gpu_seat_memory_bytes", IDLE) == {("t4", "chat", "chat"): 5000, ("t4", "vision", "vision"): 3000}


def test_a_node_serves_its_own_pool_alone() -> None:
    other = replace(T4, name="a10", node_selector={"gpu": "a10"})
    seats = tuple(Seat(name=f"s{number}", tenant="t", pool="a10", gpumem_mib=1) for number in range(50))
    registry = replace(REGISTRY, ledger=replace(LEDGER, pools=(T4, other), seats=(*SEATS, *seats)))
    assert set(mib_of("gpu_pool_memory_floor_bytes", IDLE, registry=registry)) == {("t4",)}
    assert len(mib_of("gpu_seat_memory_bytes", IDLE, registry=registry)) == len(SEATS)
    for node in (None, replace(HERE, labels={})):
        assert mib_of("gpu_pool_memory_floor_bytes", IDLE, registry=replace(registry, node=node)) == {}


def test_the_watchdogs_recycles_of_the_last_hour_are_counted_together_and_by_tenant() -> None:
    now = datetime.now(UTC)
    minutes = (("chat", 1), ("chat", 59), ("vision", 59), ("vision", 61))
    recycled = tuple(Recycle(now - timedelta(minutes=ago), f"{tenant}/Pod/p") for tenant, ago in minutes)
    body = device_reader(IDLE, registry=replace(REGISTRY, recycled=recycled)).metrics()[1]
    assert "\ngpu_watchdog_recycles_last_hour 3\n" in body
    assert '\ngpu_watchdog_tenant_recycles_last_hour{tenant="chat"} 2\n' in body
    assert '\ngpu_watchdog_tenant_recycles_last_hour{tenant="vision"} 1\n' in body
    assert "gpu_watchdog_recycles" not in device_reader(IDLE, registry=REGISTRY).metrics()[1]


def test_without_an_answer_of_the_api_the_devices_are_served_with_the_time_since() -> None:
    use = DeviceUse(device=CARD, used_bytes={MODEL: 4000 * MIB})
    assert mib_of("gpu_pod_memory_used_bytes", use, registry=Registry()) == {
        ("", "", "uid-chat", "", "0", CARD.uuid): 4000
    }
    assert "gpu_memory_exporter_api_age_seconds 33" in device_reader(use, age_seconds=33).metrics()[1]
