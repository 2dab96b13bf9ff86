"""Tests prod's placement by device with real pods on a real node. Only the GPU is a simulation."""

import math
import subprocess
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agents.runtime import exposition
from components.agents.scheduler import Scheduler, SchedulerArgs, SchedulerSpec
from tenancy import names
from tenancy.units import MIB
from tests.support.e2e import audit, plugin
from tests.support.e2e.real_gpu import real_gpu
from tests.support.e2e.rollout import GPUMEM, SYSTEM, Object, Rollout, condition, logged, pods
from tests.support.given import CLUSTER, CODE, LEDGER, declared
from tests.support.prod import raw
from tests.support.rights import granted
from tests.support.waiting import becomes, eventually
from toolchain.cluster import card, fake_nvml, node
from toolchain.cluster.image import agent_image
from toolchain.cluster.paths import program

TENANT, DEVICE = "immich", f"{names.Names('viktorbarzin.me').device_uuid}"
EXEMPT = names.EXEMPT_BY_NAME
HELD_SECONDS = 55
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{names.SCHEDULER}"
TELL = "import os, time; print(repr(os.environ.get('NVIDIA_VISIBLE_DEVICES')), flush=True); time.sleep(1)"
READ = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9402/metrics', timeout=60).read().decode())"


@pytest.fixture(scope="module")
def prod(stack: Rollout) -> Rollout:
    stack.settle(runs=[names.RECONCILE])
    return stack


@pytest.fixture(scope="module")
def gpu(prod: Rollout) -> Iterator[Path]:
    with real_gpu(prod) as shown:
        yield shown


@pytest.fixture
def tenant(prod: Rollout, gpu: Path) -> Iterator[Rollout]:
    yield prod
    for found in prod.items(pods(TENANT)):
        prod.cluster.api.request("DELETE", f"{pods(TENANT, found['metadata']['name'])}?gracePeriodSeconds=0")
    becomes(lambda: prod.items(pods(TENANT)), [], "the tenant's pods are gone")


def pod(name: str, mib: int) -> dict[str, Any]:
    container = {
        "name": "model",
        "image": agent_image(),
        "command": ["python", "-IS", "-c", TELL],
        "resources": {"limits": {GPUMEM: str(mib)}},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node.NODE},
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def submit(prod: Rollout, name: str, mib: int, namespace: str = TENANT) -> None:
    """Creates the pod. Until then, the quota may count a pod that is gone."""
    becomes(lambda: prod.create(pods(namespace), pod(name, mib)).refusal, None, f"{name} is created")


def device(prod: Rollout, name: str) -> str | None:
    found = prod.get(pods(TENANT, name))
    return found["metadata"].get("annotations", {}).get(DEVICE) if "nodeName" in found["spec"] else None


def told(prod: Rollout, name: str, *, previous: bool) -> str | None:
    path = f"{pods(TENANT, name)}/log?previous={str(previous).lower()}"
    return logged(prod.cluster.api.request("GET", path))


def reasons(prod: Rollout, name: str, namespace: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.name%3D{name}"
    return "\n".join(str(event.get("message")) for event in prod.items(path))


def event_reasons(prod: Rollout, name: str) -> set[str]:
    path = f"/api/v1/namespaces/{TENANT}/events?fieldSelector=involvedObject.name%3D{name}"
    return {str(event["reason"]) for event in prod.items(path)}


def created(found: Object) -> str:
    return str(found["metadata"]["creationTimestamp"])


def scheduled(found: Object) -> str:
    (moment,) = (c["lastTransitionTime"] for c in found["status"]["conditions"] if c["type"] == "PodScheduled")
    return str(moment)


def schedulers(prod: Rollout) -> list[Object]:
    return prod.items(f"{pods(SYSTEM)}?labelSelector=app.kubernetes.io%2Fname%3D{names.SCHEDULER}")


def scraped(prod: Rollout) -> str:
    """Returns the leader's metrics, or an empty string while the leader does not answer."""
    leader, _, _ = prod.get(LEASE)["spec"]["holderIdentity"].partition("_")
    kubectl = [program("kubectl"), f"--kubeconfig={prod.cluster.kubeconfig}", f"--namespace={SYSTEM}"]
    command = [*kubectl, "exec", leader, "--container=extender", "--", "python", "-c", READ]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_two_schedulers_run_and_one_of_them_leads(prod: Rollout) -> None:
    becomes(lambda: [condition(pod, "Ready").get("status") for pod in schedulers(prod)], ["True"] * 2, "both are ready")
    holder = eventually(lambda: (prod.cluster.api.get(LEASE) or {}).get("spec", {}).get("holderIdentity"), "one leads")
    assert holder.partition("_")[0] in {pod["metadata"]["name"] for pod in schedulers(prod)}


def test_the_container_sees_the_device_that_its_scheduler_chose_also_after_a_restart(tenant: Rollout) -> None:
    submit(tenant, "chosen", 3000)
    assert eventually(lambda: device(tenant, "chosen"), "the pod is bound to a device") == "GPU-real"
    before = eventually(lambda: told(tenant, "chosen", previous=True), "it was started again")
    after = eventually(lambda: told(tenant, "chosen", previous=False), "and told what it sees")
    assert {before, after} == {"'GPU-real'"}


def value(prod: Rollout, name: str) -> float | None:
    found = (each for each in exposition.parse(scraped(prod)) if each.name == name)
    return next((each.value for each in found if each.labels.get("node", node.NODE) == node.NODE), None)


def test_the_leader_counts_what_pods_hold_of_the_device(tenant: Rollout) -> None:
    submit(tenant, "shown", 1800)
    eventually(lambda: device(tenant, "shown"), "the pod is bound to a device")
    becomes(lambda: value(tenant, names.METRIC_EXTENDER_OFFERED), 14000 * MIB, "the leader offers the device")
    becomes(lambda: value(tenant, names.METRIC_EXTENDER_ALLOCATED), 1800 * MIB, "the last pod's memory is free again")
    becomes(lambda: value(tenant, names.METRIC_EXTENDER_LEADING), 1, "the leader says that it leads")


def shows(prod: Rollout, gpu: Path, free_mib: int) -> None:
    fake_nvml.write(gpu, card.nvml_figures(free_mib))
    eventually(lambda: exported_free_mib(prod) == free_mib, "the exporter shows it")
    began = time.monotonic()
    eventually(lambda: measured_for(prod) + 1 < time.monotonic() - began, "the extender has asked since")


def exported_free_mib(prod: Rollout) -> int | None:
    rows = plugin.shown(prod.cluster.kubeconfig, "who")["nodes"]
    row = next(row for row in rows if row["node"] == node.NODE)
    free_mib: int | None = row["devices"][0]["measured_free_mib"]
    return free_mib


def measured_for(prod: Rollout) -> float:
    age = value(prod, names.METRIC_EXTENDER_MEASURED_AGE)
    return math.inf if age is None else age


def test_a_device_that_somebody_uses_unasked_takes_no_pod_without_a_seat_until_it_is_free_again(
    prod: Rollout, gpu: Path
) -> None:
    shows(prod, gpu, 4000)
    manifest = pod("late", 3001)
    manifest["spec"] |= {"schedulerName": names.SCHEDULER_NAME, "runtimeClassName": names.GPU_RUNTIME_CLASS}
    assert prod.create(pods(EXEMPT), manifest).refusal is None
    try:
        told = "as measured and less the floor"
        eventually(lambda: told in reasons(prod, "late", EXEMPT), "the pod is told why it waits")
        becomes(lambda: plugin.reasons(prod.cluster.kubeconfig, "late", EXEMPT), ["measured"], "the plugin says why")
        assert device_of(prod, EXEMPT, "late") is None
        fake_nvml.write(gpu, card.nvml_figures(15000))
        bound = eventually(lambda: device_of(prod, EXEMPT, "late"), "the pod is bound when the memory is free")
        assert bound == "GPU-real"
    finally:
        remove(prod, EXEMPT, "late")


def test_a_seat_that_could_load_is_placed_though_it_leaves_less_than_the_floor(tenant: Rollout, gpu: Path) -> None:
    shows(tenant, gpu, 4000)
    submit(tenant, "seat", 3000)
    assert eventually(lambda: device(tenant, "seat"), "the seat is placed by the ledger") == "GPU-real"
    assert "GpuSeatHeldBack" not in event_reasons(tenant, "seat")
    fake_nvml.write(gpu, card.nvml_figures(15000))


def test_a_seat_that_could_not_load_is_held_back_and_then_placed_all_the_same(tenant: Rollout, gpu: Path) -> None:
    shows(tenant, gpu, 2000)
    submit(tenant, "seat", 3000)
    becomes(lambda: plugin.reasons(tenant.cluster.kubeconfig, "seat", TENANT), ["held"], "the plugin says why")
    eventually(lambda: "GpuSeatHeldBack" in event_reasons(tenant, "seat"), "the seat is told that it is held back")
    assert eventually(lambda: device(tenant, "seat"), "the seat is placed all the same") == "GPU-real"
    eventually(lambda: "GpuSeatOvercrowded" in event_reasons(tenant, "seat"), "it is told that memory is used there")
    found = tenant.get(pods(TENANT, "seat"))
    made, bound = (datetime.fromisoformat(moment) for moment in (created(found), scheduled(found)))
    assert (bound - made).total_seconds() >= HELD_SECONDS
    fake_nvml.write(gpu, card.nvml_figures(15000))


@pytest.fixture
def residents(prod: Rollout, gpu: Path) -> Iterator[Mapping[tuple[str, str], int]]:
    declared = raw()["residents"].items()
    seats = {(seat["tenant"], name): seat["gpumem_mib"] for name, seat in declared if seat["pool"] == "t4"}
    shows(prod, gpu, 15000)
    for (namespace, name), mib in seats.items():
        submit(prod, name, mib, namespace)
    try:
        for place in seats:
            eventually(lambda place=place: device_of(prod, *place), "the seat is placed")
        yield seats
    finally:
        for namespace, name in seats:
            remove(prod, namespace, name)


def device_of(prod: Rollout, namespace: str, name: str) -> str | None:
    found = prod.get(pods(namespace, name))
    return found["metadata"].get("annotations", {}).get(DEVICE) if "nodeName" in found["spec"] else None


def remove(prod: Rollout, namespace: str, name: str) -> None:
    prod.cluster.api.request("DELETE", f"{pods(namespace, name)}?gracePeriodSeconds=0")
    eventually(lambda: prod.cluster.api.get(pods(namespace, name)) is None, "the pod is gone")


def test_the_smallest_and_the_largest_seat_come_back_while_the_others_are_at_their_budgets(
    prod: Rollout, gpu: Path, residents: Mapping[tuple[str, str], int]
) -> None:
    """An earlier version of the extender compared only the measured free memory, and did not place the pod."""
    by_size = sorted(residents.items(), key=lambda seat: seat[1])
    for (namespace, name), mib in (by_size[0], by_size[-1]):
        remove(prod, namespace, name)
        shows(prod, gpu, 15360 - 600 - sum(residents.values()) + mib)
        submit(prod, name, mib, namespace)
        assert eventually(lambda at=(namespace, name): device_of(prod, *at), "the seat is placed") == "GPU-real"
        assert not [each for each in prod.events(namespace, names.EVENT_SEAT_HELD) if each["regarding"]["name"] == name]
    fake_nvml.write(gpu, card.nvml_figures(15000))


def test_the_extender_needs_none_of_the_roles_of_kube_scheduler(gpu: Path, prod: Rollout) -> None:
    account = f"system:serviceaccount:{SYSTEM}:{names.SCHEDULER}"
    asked = {
        (entry["verb"], entry["objectRef"].get("apiGroup", ""), _resource(entry["objectRef"]))
        for entry in audit.entries(prod.cluster, account)
        if entry["user"].get("username") == account and "kube-scheduler" not in entry.get("userAgent", "")
    }
    args = SchedulerArgs(spec=SchedulerSpec(), cluster=CLUSTER, code=CODE, ledger=LEDGER)
    held = granted(declared(Scheduler, "s", args))
    own = {(right.verb, *right.resource.split("/", 1)) for right in held}
    assert asked <= own
    assert {("create", "", "pods/binding"), ("watch", "", "pods")} <= asked


def _resource(reference: Object) -> str:
    return "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
