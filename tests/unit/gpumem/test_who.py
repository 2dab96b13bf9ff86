"""Tests that `who` reports the same sums as the extender."""

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agents.extender.cache.pod_info import Entitlement
from agents.kube.client import ApiError
from gpumem import cluster, output
from gpumem.cluster import ClusterSnapshot
from gpumem.draw import who_text
from gpumem.paper import Paper
from gpumem.who import Filter, who
from tenancy.devices.allocate import MemoryRequest
from tenancy.ledger import AdmissionTerms, Seat
from tests.support import kubectl
from tests.support.devices import feasible
from tests.support.kubectl import SYSTEM, FakeApi, add_exporter, api, device_slice, node, page, pod

PODS = "/api/v1/pods"


def read(found: FakeApi, namespace: str = "immich") -> ClusterSnapshot:
    return cluster.read(found, SYSTEM, lambda: namespace)


def measured() -> FakeApi:
    found = api(
        [
            pod("ml", 3000, on="k8s-node1"),
            pod("swap", 5000, "llama-swap", on="k8s-node1"),
            pod("tts-1", 0, "tts", on="k8s-node1"),
        ]
    )
    uses = {"immich/ml": 2900, "llama-swap/swap": 6996, "tts/tts-1": 1500}
    add_exporter(found, "k8s-node1", page("k8s-node1", 3500, uses))
    return found


def test_who_has_what_of_a_device_declared_and_in_use() -> None:
    (row,) = who(read(measured())).nodes
    (device,) = row.devices
    assert (device.offered_mib, device.held_mib, device.free_mib) == (14000, 8000, 6000)
    assert (device.measured_used_mib, device.measured_free_mib, device.room_mib) == (11860, 3500, 3500 - 1536)
    assert [(p.name, p.seat, p.declared_mib, p.used_mib, p.over_mib, p.state) for p in device.pods] == [
        ("swap", "llama-swap", 5000, 6996, 1996, "running"),
        ("ml", "immich-ml", 3000, 2900, 0, "running"),
        ("tts-1", None, 0, 1500, 1500, "unbudgeted"),
    ]


def test_a_pod_on_two_devices_has_its_seat_and_its_overshoot_on_each() -> None:
    pair = Seat(name="pair", tenant="immich", pool="t4", gpumem_mib=3000, devices_per_pod=2)
    ledger = replace(kubectl.LEDGER_OF_PROD, seats=(*kubectl.LEDGER_OF_PROD.seats, pair))
    pods = [
        pod("pair-0", 6000, on="k8s-node1", devices=(0, 1)),
        pod("pair-1", 6000, limits={kubectl.NAMES.gpu_count: "2"}),
        pod("other", 6000),
    ]
    found = api(pods, ledger=ledger, slices=[device_slice("k8s-node1", 15360, 15360)])
    add_exporter(found, "k8s-node1", page("k8s-node1", 3500, {"immich/pair-0": 3500}))
    report = who(read(found))
    held = [(p.seat, p.declared_mib, p.over_mib) for device in report.nodes[0].devices for p in device.pods]
    assert held == [("pair", 3000, 500), ("pair", 3000, 0)]
    assert {each.name: each.seat for each in report.waiting} == {"pair-1": "pair", "other": None}


def test_without_an_exporter_a_line_says_what_is_not_known() -> None:
    report = who(read(api([pod("ml", 3000, on="k8s-node1")])))
    assert report.unknown == ("what is in use is not known: no exporter runs in gpu-tenancy-system-nodes",)
    (holder,) = report.nodes[0].devices[0].pods
    assert (holder.used_mib, holder.over_mib, report.nodes[0].devices[0].room_mib) == (None, None, 4200)


def test_an_exporter_that_does_not_answer_is_named_and_the_ledger_counts() -> None:
    found = api([pod("ml", 3000, on="k8s-node1")])
    add_exporter(found, "k8s-node1", page("k8s-node1", 12000, {}))
    found.texts.clear()
    (gap,) = who(read(found)).unknown
    assert gap.startswith("k8s-node1: what is in use: GET ")


def test_a_tenant_sees_his_own_pods_and_what_is_promised() -> None:
    found = measured()
    found.refused |= {PODS, f"/api/v1/namespaces/{kubectl.EXPORTERS}/pods"}
    report = who(read(found))
    assert report.scope == "immich"
    assert [p.name for row in report.nodes for device in row.devices for p in device.pods] == ["ml"]
    assert len(report.unknown) == 2
    (pool,) = report.pools
    assert (pool.promised_mib, pool.free_mib, pool.room_mib) == (9800, None, None)
    assert (report.own, report.own_budget_mib, report.own_held_mib) == ("immich", 4800, 3000)
    assert "swap" not in who_text(report, Paper())


def test_another_error_than_no_rights_is_an_error() -> None:
    found = api()
    del found.lists[PODS]
    with pytest.raises(ApiError, match="404"):
        read(found)


def test_who_waits_is_listed_oldest_first_with_the_seat() -> None:
    found = api([pod("new", 3000), pod("big", 9000), pod("ended", 100, status={"phase": "Succeeded"}), pod("none")])
    report = who(read(found))
    assert [(w.name, w.mib, w.seat, w.age) for w in report.waiting] == [
        ("big", 9000, None, "10m"),
        ("new", 3000, "immich-ml", "10m"),
    ]


def test_a_pod_has_the_seat_that_its_label_names() -> None:
    found = api([pod("ml", 1800, on="k8s-node1", seat="immich-ml"), pod("new", 1800, seat="immich-ml")])
    report = who(read(found))
    assert [held.seat for node in report.nodes for device in node.devices for held in device.pods] == ["immich-ml"]
    assert [waiting.seat for waiting in report.waiting] == ["immich-ml"]


@pytest.mark.parametrize(("replicas", "shown"), [(1, "open"), (0, "closed"), (None, "no Deployment"), (-1, "unknown")])
def test_a_gate_is_open_or_closed_as_its_deployment_says(replicas: int | None, shown: str) -> None:
    found = api()
    if replicas == -1:
        found.refused.add("/apis/apps/v1/namespaces/tts/deployments/tts")
    if replicas is not None:
        found.objects["/apis/apps/v1/namespaces/tts/deployments/tts"] = {"spec": {"replicas": replicas}}
    assert who_text(who(read(found)), Paper()).rstrip().splitlines()[-3].endswith(shown)


def test_the_gates_deployment_may_have_another_name() -> None:
    found = api()
    terms = {"name": "tts", "namespace": "tts", "deployment": "voices", "pool": "t4", "need_mib": 2048}
    times = {"margin_mib": 0, "samples": 1, "idle_seconds": 1, "cool_down_seconds": 1}
    gates = json.dumps([{**terms, **times, "demand": {"kind": "free_memory"}}])
    container = {"env": [{"name": "GATES", "value": gates}]}
    found.objects[f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs/gpu-demand-gate"] = {
        "spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": [container]}}}}}
    }
    found.objects["/apis/apps/v1/namespaces/tts/deployments/voices"] = {"spec": {"replicas": 1}}
    assert who(read(found)).gates[0].state == "open"


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        (Filter(), {"ml", "swap", "tts-1"}),
        (Filter(namespace="immich"), {"ml"}),
        (Filter(node="k8s-node2"), set()),
        (Filter(pool="t4"), {"ml", "swap", "tts-1"}),
        (Filter(pool="batch"), set()),
        (Filter(uids=frozenset({"uid-immich-ml"})), {"ml"}),
    ],
)
def test_a_filter_leaves_out_the_rest(wanted: Filter, shown: set[str]) -> None:
    report = who(read(measured()), wanted)
    assert {p.name for row in report.nodes for device in row.devices for p in device.pods} == shown


def test_what_others_hold_stays_in_the_sum_when_one_namespace_is_shown() -> None:
    text = who_text(who(read(measured()), Filter(namespace="immich")), Paper())
    assert "8000 of 14000 MiB held, 6000 free by the ledger" in text
    assert "others 5000" in text


def test_the_memory_of_absent_seats_is_drawn_as_planned() -> None:
    report = who(read(api([pod("ml", 3000, on="k8s-node1")])))
    (device,) = (device for row in report.nodes for device in row.devices)
    absent_mib = kubectl.LEDGER_OF_PROD.promised_mib("t4") - 3000
    assert device.kept_mib == absent_mib > 0
    text = who_text(report, Paper(120))
    assert f"11000 free by the ledger, {absent_mib} of them planned for absent seats" in text
    assert f"░ planned {absent_mib} ░" in text
    assert "planned" not in who_text(who(read(api([], ledger=WITHOUT_SEATS))), Paper())


def test_an_unreadable_request_is_a_line_and_no_crash() -> None:
    odd = [pod("odd", on="k8s-node1", limits={"cpu": "x"}), pod("odder", limits={kubectl.NAMES.gpumem: "y"})]
    report = who(read(api(odd)))
    assert [line[:30] for line in report.unknown[1:]] == ["is not counted: pod immich/odd"] * 2
    assert report.waiting == ()


WITHOUT_SEATS = replace(kubectl.LEDGER_OF_PROD, seats=())


@given(st.data())
def test_the_sums_are_the_extenders_own(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(2000, 20000), min_size=1, max_size=3))
    pods = [
        pod(
            f"p{number}",
            data.draw(st.integers(1, 9000)),
            data.draw(st.sampled_from(["immich", "llama-swap"])),
            on="k8s-node1",
            devices=(data.draw(st.integers(0, len(sizes) - 1)),),
        )
        for number in range(data.draw(st.integers(0, 5)))
    ]
    given_nodes, slices = [node("k8s-node1", mib=60000)], [device_slice("k8s-node1", *sizes)]
    found = read(api(pods, given_nodes, slices=slices))
    unpromised = read(api(pods, given_nodes, WITHOUT_SEATS, slices))
    report = who(found)
    (rooms,) = report.pools
    counted = [usage for usage in found.cache.snapshot() if usage.devices]
    shown = [row for row in report.nodes if row.devices]
    assert [[(d.index, d.offered_mib, d.held_mib, d.room_mib) for d in row.devices] for row in shown] == [
        [(d.index, d.mib, d.held_mib, d.room_mib) for d in usage.devices] for usage in counted
    ]
    assert rooms.held_mib == sum(device.held_mib for usage in counted for device in usage.devices)
    seat, anybody = Entitlement(0, frozenset({"t4"})), Entitlement()
    for mib, entitlement, snapshot in (
        (rooms.largest_free_mib, seat, unpromised),
        (rooms.largest_room_mib, anybody, found),
    ):
        assert mib is not None
        cache = snapshot.cache
        assert not mib or feasible(cache, MemoryRequest(mib), 0, "", entitlement, by_ledger=True)
        assert snapshot is found or not feasible(cache, MemoryRequest(mib + 1), 0, "", entitlement, by_ledger=True)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), each),
        max_leaves=6,
    )
)
def test_whatever_is_written_as_yaml_is_read_back(value: object) -> None:
    assert yaml.safe_load(output.as_yaml({"x": value})) == {"x": value}


def test_colour_is_asked_for() -> None:
    report = who(read(measured()))
    assert "\x1b" not in who_text(report, Paper())
    assert "\x1b" in who_text(report, Paper(colour=True))


def test_of_a_stack_that_observes_it_begins_with_a_line_that_names_the_parts() -> None:
    found = read(measured())
    assert not who_text(who(found), Paper()).startswith("this stack observes")
    observing = replace(found, ledger=replace(found.ledger, observes=("admission", "watchdog")))
    first = "this stack observes: admission, watchdog only report what they would do"
    assert who_text(who(observing), Paper()).splitlines()[0] == first


def without_the_extender(*pods: dict[str, Any]) -> FakeApi:
    admission = AdmissionTerms(gpu_priority="gpu-workload", priorities={}, own=(SYSTEM,))
    found = api(pods, ledger=replace(kubectl.LEDGER_OF_PROD, admission=admission), slices=[])
    for each in found.lists[PODS]:
        each["metadata"]["annotations"] = {}
    return found


def test_without_the_extender_the_exporter_shows_the_devices_and_a_pod_is_on_the_only_one() -> None:
    """Before the fix, the command showed such a node as a node that refuses new pods."""
    found = without_the_extender(pod("ml", 3000, on="k8s-node1"), pod("tts-1", 0, "tts", on="k8s-node1"))
    uses = {"immich/ml": 2900, "tts/tts-1": 1500}
    add_exporter(found, "k8s-node1", page("k8s-node1", 10000, uses))
    report = who(read(found))
    (row,) = report.nodes
    (device,) = row.devices
    assert (row.unusable, row.adrift, report.unknown) == (None, (), ())
    assert [(p.name, p.declared_mib, p.used_mib) for p in device.pods] == [("ml", 3000, 2900), ("tts-1", 0, 1500)]
    (pool,) = report.pools
    assert (pool.free_mib, pool.measured_free_mib) == (11000, 10000)


def test_without_the_extender_and_without_a_reading_no_node_is_reported_to_take_no_pod() -> None:
    report = who(read(without_the_extender(pod("ml", 3000, on="k8s-node1"))))
    (row,) = report.nodes
    assert (row.unusable, [each.name for each in row.adrift]) == (None, ["ml"])
    assert report.unknown == ("what is in use is not known: no exporter runs in gpu-tenancy-system-nodes",)
