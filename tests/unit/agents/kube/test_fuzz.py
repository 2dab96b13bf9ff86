"""Tests that an agent's pass continues for any value in the fields of docs/choosing/fields.md. `make soak` tests
100,000 values.
"""

import io
import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from agents.extender.cache.cache import Cache
from agents.extender.cache.informers import Informers
from agents.extender.cache.inventory import devices_of
from agents.gate import deployments
from agents.gate.pods import bound_pod
from agents.gate.probes import HttpJson, PrometheusQuery
from agents.guard.follow import AdjustmentRule
from agents.kube.nodes import read_node
from agents.kube.pods import Pod, waiting_seat
from agents.node.pods import node_pod
from agents.reconcile.cache import NodeCache
from agents.reconcile.decide import NodeFinding, NodePatch, decide
from agents.runtime.clock import Clock
from agents.runtime.items import ItemProblems, Unjudged, judged
from agents.runtime.log import Log
from agents.telemetry.client import exporter_of
from agents.telemetry.reading import parse
from agents.watchdog.pods import read_pods
from tenancy.ledger import Ledger, Seat
from tenancy.names import EXPORTER, LABEL_NAME
from tests.support.fake_cluster import DOMAIN, LABELS, NAMES, SYSTEM, T4, Served
from tests.support.hostile_fields import ABSENT, CREATED, VALUES, fields, pod, with_value
from tests.support.search import cases, dice

LEDGER = Ledger(
    domain=DOMAIN,
    pools=(T4,),
    seats=(Seat(name="s", tenant="n", pool=T4.name, gpumem_mib=3000),),
    queue_tenants=("n",),
)
NODE: dict[str, Any] = {
    "kind": "Node",
    "metadata": {"name": "k8s-node1", "uid": "u", "resourceVersion": "1", "labels": dict(LABELS), "annotations": {}},
    "status": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}},
}
SLICE: dict[str, Any] = {
    "kind": "ResourceSlice",
    "metadata": {"name": "s", "resourceVersion": "1"},
    "spec": {
        "driver": NAMES.device_driver,
        "nodeName": "k8s-node1",
        "pool": {"name": "k8s-node1", "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {"uuid": {"string": "GPU-0"}, "index": {"int": 0}},
                "capacity": {"memory": {"value": "15Gi"}},
            }
        ],
    },
}
DEPLOYMENT: dict[str, Any] = {
    "kind": "Deployment",
    "metadata": {
        "namespace": "n",
        "name": "tts",
        "uid": "u",
        "resourceVersion": "1",
        "generation": 1,
        "managedFields": [{"manager": "helm", "fieldsV1": {"f:spec": {"f:replicas": {}}}}],
    },
    "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": []}}},
}
SCALER = {"metadata": {"namespace": "n", "name": "h"}, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "x"}}}
GOOD = pod("neighbour")
EXPORTING = {LABEL_NAME: EXPORTER}
RULE = AdjustmentRule(members=frozenset({"n/llm"}), total_mib=64_000, victim_adj=1000)


@dataclass
class Passes:
    served: Served
    output: io.StringIO

    @property
    def problems(self) -> ItemProblems:
        return ItemProblems(log=Log("test", self.output))

    def pods(self, item: dict[str, Any]) -> list[Any]:
        problems, both = self.problems, (item, GOOD)
        informers = Informers(
            api=self.served.api(), cache=Cache(), ledger_namespace=SYSTEM, clock=Clock(), log=problems.log
        )
        informers.problems, informers.ledger, informers.listed_at = problems, LEDGER, 0.0
        reconciling = NodeCache(names=NAMES, problems=problems)
        reconciling.add_node(NODE)
        for each in both:
            informers.informer.apply({"type": "ADDED", "object": each})
            informers.informer.apply({"type": "DELETED", "object": each})
            informers.informer.apply({"type": "ADDED", "object": each})
            reconciling.apply({"type": "ADDED", "object": {**each, "kind": "Pod"}})
        listing = partial(read_pods, Listed(both), "k8s-node1", LEDGER)
        return [
            [found for found in listing(problems) if found.uid == "uid-neighbour"],
            [node_pod(each, LEDGER, problems) for each in both][1],
            [bound_pod(each, {"k8s-node1"}, LEDGER, problems) for each in both][1],
            [problems.judge("pod", "x", partial(waiting_seat, each, LEDGER), lambda why: None) for each in both][1],
            [judged(partial(RULE.protect, Pod(each))) for each in both][1],
            reconciling.seats.get("uid-neighbour"),
            informers.cache.node("k8s-node1").pods.get("uid-neighbour"),
        ]

    def nodes(self, item: dict[str, Any]) -> list[Any]:
        good = {**NODE, "metadata": {**NODE["metadata"], "name": "neighbour"}}
        reconciling = NodeCache(names=NAMES, problems=self.problems)
        for each in (item, good):
            reconciling.apply({"type": "ADDED", "object": {**each, "kind": "Node"}})
            if (node := read_node(each, self.problems)) is not None:
                devices_of(node, [SLICE], LEDGER)
        actions = decide(LEDGER, reconciling.snapshot())
        return [_about(actions, "neighbour")]

    def slices(self, item: dict[str, Any]) -> list[Any]:
        reconciling = NodeCache(names=NAMES, problems=self.problems)
        informers = Informers(
            api=self.served.api(), cache=Cache(), ledger_namespace=SYSTEM, clock=Clock(), log=self.problems.log
        )
        informers.problems, informers.ledger = self.problems, LEDGER
        other = {**NODE, "metadata": {**NODE["metadata"], "name": "neighbour"}}
        theirs = deepcopy(SLICE)
        theirs["metadata"] = {"name": "theirs"}
        theirs["spec"] |= {
            "nodeName": "neighbour",
            "pool": {"name": "neighbour", "generation": 1, "resourceSliceCount": 1},
        }
        for each in (NODE, other, item, theirs):
            informers.informer.apply({"type": "ADDED", "object": each})
            reconciling.apply({"type": "ADDED", "object": each})
        return [
            informers.cache.node("neighbour").inventory,
            _about(decide(LEDGER, reconciling.snapshot()), "neighbour"),
        ]

    def deployments(self, item: dict[str, Any]) -> list[Any]:
        found = judged(partial(deployments.read, Found(item), "n", "tts"))
        assert isinstance(found, Unjudged | deployments.Deployment)
        return []

    def scalers(self, item: dict[str, Any]) -> list[Any]:
        good = {"metadata": {"name": "g"}, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "other"}}}
        return [deployments.read_scalers(Listed((item, good)), "n", self.problems)["other"]]


def _about(actions: tuple[NodePatch | NodeFinding, ...], name: str) -> list[Any]:
    return [(each.reason, each.note) for each in actions if each.node.name == name]


@dataclass
class Listed:
    found: tuple[dict[str, Any], ...]

    def items(self, path: str, **parameters: str) -> Iterator[dict[str, Any]]:
        yield from self.found


@dataclass
class Found:
    found: dict[str, Any]

    def find(self, path: str) -> dict[str, Any]:
        return self.found


KINDS: dict[str, tuple[dict[str, Any], Callable[[Passes, dict[str, Any]], list[Any]]]] = {
    "Pod": (pod(), Passes.pods),
    "Node": (NODE, Passes.nodes),
    "ResourceSlice": (SLICE, Passes.slices),
    "Deployment": (DEPLOYMENT, Passes.deployments),
    "ScaledObject": (SCALER, Passes.scalers),
}


@pytest.mark.search
@pytest.mark.parametrize("kind", KINDS)
def test_no_value_of_a_listed_field_ends_a_pass_or_changes_another_objects_result(served: Served, kind: str) -> None:
    item, judge = KINDS[kind]
    roll, listed = dice(kind), fields(kind)
    assert listed
    passes = Passes(served, io.StringIO())
    expected = judge(passes, item)
    for _ in range(cases(400, soak=20_000)):
        path, value = roll.choice(listed), roll.choice((*VALUES, ABSENT))
        hostile = with_value(item, path, value, roll)
        assert judge(passes, hostile) == expected, (path, str(value)[:80])
        passes.output.seek(0)
        passes.output.truncate()


@pytest.mark.search
def test_no_answer_to_a_probe_and_no_page_of_an_exporter_raises_more_than_its_own_error() -> None:
    roll, now = dice("answers"), datetime.now(UTC)
    probes = (HttpJson(url="http://x", field="a.b"), PrometheusQuery(address="http://x", query="q"))
    page = 'gpu_device_memory_total_bytes{gpu="0",uuid="GPU-0"} 1\ngpu_memory_sample_age_seconds 1\n'
    for _ in range(cases(400, soak=20_000)):
        value = roll.choice(VALUES)
        answers = {"a": {"b": value}, "data": {"resultType": roll.choice(("scalar", "vector")), "result": value}}
        body = json.dumps(answers).encode() if roll.random() < 0.7 else b"[" * roll.randrange(70_000)
        for probe in probes:
            found = judged(lambda probe=probe, body=body: probe.answer(now, lambda url: body))
            assert isinstance(found, Unjudged) or found.why
        text = page.replace(roll.choice(("0", "1", "GPU-0", "gpu")), str(value)[:5000])
        assert judged(partial(parse, text))


def test_an_unreadable_object_is_reported_with_its_name_and_the_reason(served: Served) -> None:
    passes = Passes(served, io.StringIO())
    passes.pods({**pod(), "status": {"phase": "Running", "startTime": "yesterday"}})
    messages = {json.loads(line)["message"] for line in passes.output.getvalue().splitlines()}
    assert "the pod n/hostile cannot be judged: startTime: is not a time of RFC 3339: 'yesterday'" in messages


class Recorded(dict[str, Any]):
    def __init__(self, item: dict[str, Any], path: tuple[str, ...], reads: set[tuple[str, ...]]) -> None:
        super().__init__({key: _recorded(value, (*path, key), reads) for key, value in item.items()})
        self._path, self._reads = path, reads

    def get(self, key: str, default: Any = None) -> Any:
        self._reads.add((*self._path, key))
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._reads.add((*self._path, key))
        return super().__getitem__(key)


def _recorded(value: Any, path: tuple[str, ...], reads: set[tuple[str, ...]]) -> Any:
    return Recorded(value, path, reads) if isinstance(value, dict) and len(path) < 2 else value


@pytest.mark.parametrize("kind", KINDS)
def test_the_document_lists_each_field_that_an_agent_reads_and_no_other(served: Served, kind: str) -> None:
    item, judge = KINDS[kind]
    reads: set[tuple[str, ...]] = set()
    recorded = Recorded({**item, "status": item.get("status", {})}, (), reads)
    judge(Passes(served, io.StringIO()), recorded)
    if kind == "Pod":
        ending = {**item, "metadata": {**item["metadata"], "deletionTimestamp": CREATED}}
        judge(Passes(served, io.StringIO()), Recorded(ending, (), reads))
        unbound = {**item, "spec": {**item["spec"], "nodeName": ""}, "status": {"phase": "Pending"}}
        judge(Passes(served, io.StringIO()), Recorded(unbound, (), reads))
        exporter_of(Recorded({**item, "metadata": {**item["metadata"], "labels": EXPORTING}}, (), reads))
    assert {path for path in reads if len(path) == 2} == set(fields(kind))
