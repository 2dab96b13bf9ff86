"""Tests the answers of status on 100 drawn clusters, of which one thing is out of order.

The true answer comes from the thing that was changed, and not from the code under test.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpumem import cluster
from gpumem.status import State, Status, status
from tenancy.names import EXPORTER, GATE, KUEUE, LABEL_NAME, LABEL_PART_OF, PROJECT, RECONCILE, SCHEDULER, WATCHDOG
from tests.support.fake_cluster import T4
from tests.support.kubectl import (
    BATCH,
    EXPORTERS,
    LEDGER_OF_PROD,
    NAMES,
    SYSTEM,
    FakeApi,
    add_exporter,
    api,
    device_slice,
    node,
    page,
)

CRON_JOBS = f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments"
DAEMON_SETS = f"/apis/apps/v1/namespaces/{EXPORTERS}/daemonsets"
KUEUES = "/apis/apps/v1/deployments"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
NODES, SLICES = "/api/v1/nodes", "/apis/resource.k8s.io/v1/resourceslices"
AGENTS = (RECONCILE, WATCHDOG, GATE, SCHEDULER, EXPORTER, KUEUE)
OLD, NEW = "2026-11-01T00:00:00Z", "2026-11-22T11:59:30Z"
Drawn = random.Random


def chance(seed: int) -> Drawn:
    return random.Random(seed)  # noqa: S311 (a state to repeat, and no secret)


def made(name: str, status: dict[str, Any], created: str = OLD, **labels: str) -> dict[str, Any]:
    own = {LABEL_PART_OF: PROJECT} | labels
    metadata = {"name": name, "namespace": SYSTEM, "creationTimestamp": created, "labels": own}
    return {"metadata": metadata, "spec": {}, "status": status}


def healthy(drawn: Drawn) -> FakeApi:
    """Returns a cluster with all that its ledger declares: 1 to 3 shared nodes, and 1 or 2 with whole devices."""
    shared = [f"shared-{number}" for number in range(drawn.randint(1, 3))]
    whole = [f"whole-{number}" for number in range(drawn.randint(1, 2))]
    pools = (replace(T4, nodes=len(shared)), replace(BATCH, nodes=len(whole)))
    ledger = replace(LEDGER_OF_PROD, pools=pools, workloads=AGENTS)
    nodes = [*map(node, shared), *(node(name, "whole") for name in whole)]
    found = api(nodes=nodes, ledger=ledger, slices=[device_slice(name, 15360) for name in shared])
    for name in shared:
        add_exporter(found, name, page(name, 13000, {}))
    ran = {"lastSuccessfulTime": "2026-11-22T11:59:20Z"}
    found.lists |= {
        CRON_JOBS: [made(name, dict(ran)) for name in (RECONCILE, WATCHDOG, GATE)],
        DEPLOYMENTS: [made(SCHEDULER, {"readyReplicas": 1})],
        DAEMON_SETS: [made(EXPORTER, {"desiredNumberScheduled": len(shared), "numberReady": len(shared)})],
        KUEUES: [made("kueue-controller-manager", {"readyReplicas": 1}, **{LABEL_NAME: KUEUE})],
        QUEUES: [{"metadata": {"name": "gpu-cq"}, "status": {"conditions": [{"type": "Active", "status": "True"}]}}],
    }
    return found


def one_node(found: FakeApi, drawn: Drawn, kind: str = "t4") -> dict[str, Any]:
    chosen: dict[str, Any] = drawn.choice(
        [each for each in found.lists[NODES] if each["metadata"]["labels"]["gpu"] == kind]
    )
    return chosen


Truth = tuple[State, str]


def nothing(found: FakeApi, drawn: Drawn) -> Truth:
    del found, drawn
    return State.WELL, ""


def an_object_is_deleted(found: FakeApi, drawn: Drawn) -> Truth:
    listed = drawn.choice([CRON_JOBS, DEPLOYMENTS, DAEMON_SETS, KUEUES, QUEUES])
    gone = found.lists[listed].pop(drawn.randrange(len(found.lists[listed])))
    return State.WRONG, KUEUE if listed == KUEUES else gone["metadata"]["name"]


def an_agent_is_new(found: FakeApi, drawn: Drawn) -> Truth:
    listed = found.lists[drawn.choice([CRON_JOBS, DEPLOYMENTS])]
    at = drawn.randrange(len(listed))
    listed[at] = made(listed[at]["metadata"]["name"], {}, NEW)
    return State.STARTING, listed[at]["metadata"]["name"]


def an_agent_never_ran(found: FakeApi, drawn: Drawn) -> Truth:
    truth = an_agent_is_new(found, drawn)
    for each in (*found.lists[CRON_JOBS], *found.lists[DEPLOYMENTS]):
        each["metadata"]["creationTimestamp"] = OLD
    return State.WRONG, truth[1]


def a_node_is_gone(found: FakeApi, drawn: Drawn) -> Truth:
    gone = one_node(found, drawn, drawn.choice(["t4", "whole"]))
    found.lists[NODES].remove(gone)
    return State.WRONG, "pool t4" if gone["metadata"]["labels"]["gpu"] == "t4" else "pool batch"


def a_node_takes_no_pods(found: FakeApi, drawn: Drawn) -> Truth:
    chosen = one_node(found, drawn, drawn.choice(["t4", "whole"]))
    if drawn.random() < 0.5:
        chosen["spec"]["unschedulable"] = True
    else:
        chosen["status"]["conditions"][0]["status"] = drawn.choice(["False", "Unknown"])
    return State.WRONG, chosen["metadata"]["name"]


def a_node_is_tainted(found: FakeApi, drawn: Drawn) -> Truth:
    chosen, effect = one_node(found, drawn), drawn.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"])
    chosen["spec"]["taints"] = [
        {"key": drawn.choice(["dedicated", "node.kubernetes.io/disk-pressure"]), "effect": effect}
    ]
    return (State.WELL, "") if effect == "PreferNoSchedule" else (State.WRONG, chosen["metadata"]["name"])


def a_node_has_the_taint_of_gpus(found: FakeApi, drawn: Drawn) -> Truth:
    one_node(found, drawn)["spec"]["taints"] = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    return State.WELL, ""


def a_node_advertises_less(found: FakeApi, drawn: Drawn) -> Truth:
    chosen = one_node(found, drawn)
    chosen["status"]["allocatable"][NAMES.gpumem] = str(drawn.choice([0, drawn.randint(1, 13999)]))
    return State.WRONG, chosen["metadata"]["name"]


def a_whole_node_advertises_nothing(found: FakeApi, drawn: Drawn) -> Truth:
    chosen = one_node(found, drawn, "whole")
    chosen["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    return State.WRONG, chosen["metadata"]["name"]


def a_device_is_too_small(found: FakeApi, drawn: Drawn) -> Truth:
    chosen = one_node(found, drawn)["metadata"]["name"]
    found.lists[SLICES] = [each for each in found.lists[SLICES] if each["spec"]["nodeName"] != chosen]
    found.lists[SLICES].append(device_slice(chosen, drawn.randint(2000, 15359)))
    return State.WRONG, chosen


def an_exporter_does_not_answer(found: FakeApi, drawn: Drawn) -> Truth:
    url = drawn.choice(sorted(found.texts))
    if drawn.random() < 0.5:
        del found.texts[url]
    else:
        found.texts[url] = b"garbage"
    return State.UNKNOWN, "pool t4"


def a_list_may_not_be_read(found: FakeApi, drawn: Drawn) -> Truth:
    path = drawn.choice([CRON_JOBS, DEPLOYMENTS, DAEMON_SETS, KUEUES, QUEUES])
    found.refused.add(path)
    return State.UNKNOWN, path.rpartition("/")[2]


def a_device_is_under_its_floor(found: FakeApi, drawn: Drawn) -> Truth:
    url = drawn.choice(sorted(found.texts))
    name = url.partition("/exporter-")[2].partition(":")[0]
    found.texts[url] = page(name, drawn.randint(0, T4.floor_mib - 1), {}).encode()
    return State.WRONG, name


CHANGES: tuple[Callable[[FakeApi, Drawn], Truth], ...] = (
    nothing,
    an_object_is_deleted,
    an_agent_is_new,
    an_agent_never_ran,
    a_node_is_gone,
    a_node_takes_no_pods,
    a_node_is_tainted,
    a_node_has_the_taint_of_gpus,
    a_node_advertises_less,
    a_whole_node_advertises_nothing,
    a_device_is_too_small,
    an_exporter_does_not_answer,
    a_list_may_not_be_read,
    a_device_is_under_its_floor,
)


def judged(found: FakeApi) -> Status:
    return status(found, cluster.read(found, SYSTEM, str), SYSTEM)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(100))
def test_status_names_the_one_thing_that_is_out_of_order(seed: int) -> None:
    drawn = chance(seed)
    found = healthy(drawn)
    state, what = CHANGES[seed % len(CHANGES)](found, drawn)
    report = judged(found)
    assert report.worst is state, report.parts
    shown = [part for part in report.parts if part.state is state]
    assert what in " ".join(f"{part.name} {part.text}" for part in shown)
    assert state is State.WELL or len(shown) == 1, shown
