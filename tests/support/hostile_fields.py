"""Hostile values for the fields in docs/choosing/fields.md."""

import math
import re
from copy import deepcopy
from random import Random
from typing import Any

from tenancy.names import KUEUE_POD_SET_LABEL, KUEUE_WORKLOAD_ANNOTATION, SCHEDULER_NAME
from tests.support.fake_cluster import NAMES
from tests.support.paths import ROOT

CREATED = "2026-06-02T06:00:00Z"
ROW = re.compile(r"\| (?P<kinds>[A-Z][A-Za-z, ]+) \| `(?P<path>[a-zA-Z.]+)` \|")
DEEP: Any = "x"
for _ in range(500):
    DEEP = [DEEP]
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 1.5, -0.0, 1e308, math.nan, math.inf, 2**31, 2**63, -(2**63), 10**400),
    *("", " ", "x", "X", "0", "-1", "1e999", "9" * 401, "9" * 5000, "5k", "1.5Mi", "Ei", "NaN", "true"),
    *("é", "\ud800", "\x00", "\x1b[2J", "a\nb", "../../x", "..", "a?dryRun=All", "a/b", "x" * 254, "x" * 262_144),
    *("2026-13-45T99:99:99Z", "2026-06-02T06:00:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
    *("1779-11-01T07:00:00Z", "2026-06-02T06:00:00+23:59", "Running", "Always", "nvidia", "GPU-0,GPU-0", "0,0"),
    *([], {}, [[]], [{}], [None], [1], ["x"], {"": None}, {"a": 1}, {"name": []}, {"x" * 262_144: "x"}, DEEP),
    *([{"controller": True}], [{"controller": True, "kind": 1, "name": [], "uid": {}}], {"limits": 1}),
    *([{"name": "c", "resources": {"limits": {NAMES.gpumem: "1e999"}}}], [{"name": {}, "state": []}] * 9),
)


def fields(kind: str) -> list[tuple[str, ...]]:
    rows = ROW.finditer((ROOT / "docs" / "choosing" / "fields.md").read_text(encoding="utf-8"))
    return [tuple(row["path"].split(".")) for row in rows if kind in row["kinds"].split(", ")]


def pod(name: str = "hostile", **metadata: Any) -> dict[str, Any]:
    running = {"name": "c", "containerID": "containerd://aaa", "state": {"running": {"startedAt": CREATED}}}
    requests = {"limits": {NAMES.gpumem: "3k", "memory": "1Gi", NAMES.gpu_count: "1"}}
    return {
        "kind": "Pod",
        "metadata": {
            "namespace": "n",
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": CREATED,
            "labels": {KUEUE_POD_SET_LABEL: "main"},
            "annotations": {
                KUEUE_WORKLOAD_ANNOTATION: "job-a",
                NAMES.device_uuid: "GPU-0",
                NAMES.device_index: "0",
                "kubernetes.io/config.hash": "a",
                "kubernetes.io/config.mirror": "a",
            },
            "ownerReferences": [{"controller": True, "kind": "Node", "name": "k8s-node1", "uid": "u"}],
            **metadata,
        },
        "spec": {
            "nodeName": "k8s-node1",
            "nodeSelector": {"gpu": "t4"},
            "schedulerName": SCHEDULER_NAME,
            "priority": 1,
            "priorityClassName": "llm",
            "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "c", "resources": requests, "env": [{"name": "A", "value": "1"}]}],
            "initContainers": [],
            "overhead": {"cpu": "1m"},
        },
        "status": {
            "phase": "Running",
            "startTime": CREATED,
            "podIP": "10.0.0.1",
            "conditions": [{"type": "PodScheduled", "reason": "Unschedulable", "message": ""}],
            "containerStatuses": [running],
        },
    }


def with_value(item: dict[str, Any], path: tuple[str, ...], value: Any, roll: Random) -> dict[str, Any]:
    changed = deepcopy(item)
    place: Any = changed
    for field in path[:-1]:
        place = place.setdefault(field, {})
    key: Any = path[-1]
    while roll.random() < 0.5 and isinstance(place, dict | list) and isinstance(_at(place, key), dict | list):
        below = _at(place, key)
        if not below:
            break
        place, key = below, roll.choice([*below] if isinstance(below, dict) else [*range(len(below))])
    if value is ABSENT:
        if isinstance(place, dict):
            place.pop(key, None)
    else:
        place[key] = value
    return changed


def _at(place: Any, key: Any) -> Any:
    return place.get(key) if isinstance(place, dict) else place[key]


ABSENT = object()
