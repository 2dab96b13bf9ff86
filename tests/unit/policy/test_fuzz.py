"""Tests that the policy pack is fast, and never ends with a traceback, for any resource graph."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from policy.graph import Graph
from policy.rule import an_object
from policy.rules import violations
from policy.view import objects_of
from tenancy import names
from tenancy.ledger import Seat
from tests.support import graphs
from tests.support.graphs import BATCH, GPUMEM, LEDGER, T4, UNKNOWN, Program, judge, platform, pod
from tests.support.search import cases, dice

Path = tuple[str | int, ...]

LONGEST = 2000  # The most characters in a message of the policy pack.
MORE_THAN_PROD = 2000  # The most time for a program, as a multiple of the 5 ms for prod.
WITHIN = "(the JSON in it)"
ATOMS: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, 1e308, float("nan"), float("inf"), 2**63, 10**12, 10**100),
    *("", "x", "-1", "1e999", "5k", "9" * 5000, "1." + "3" * 5000, "é\x00", "$(x)", "Always", "{}", "[", "null"),
    *("[" * 20_000, "0x10", "NaN", "true", "*", "a/b", "a/b/c", "100%", "-5%", UNKNOWN),
    *([], {}, [[]], [{}], [None], [1], ["x"], {"": None}, {"a": 1}, {"name": None}, {"name": []}, {"name": {}}),
)
KEYS = ("name", "spec", "limits", "requests", GPUMEM, "", "key", "value", "namespace", "metadata", "labels", "items")


def program() -> Program:
    found = platform()
    spec = graphs.deployment("portal-stt", "portal-stt", 1500)["spec"]
    labels = {"nvidia.com/gpu.sharing-strategy": "time-slicing", names.LABEL_GPU_MEMORY: "15360"}
    return found | {
        "release": {"apiVersion": "helm.sh/v3", "kind": "Release", "name": "x", "values": {"a": {"b": 1}}},
        "chart": {"apiVersion": "helm.sh/v4", "kind": "Chart", "resources": []},
        "claim": an_object(
            "resource.k8s.io/v1",
            "ResourceClaim",
            "x",
            "frigate",
            spec={"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
        ),
        "list": {"apiVersion": "apps/v1", "kind": "DeploymentList", "items": [graphs.deployment("a", "b", 1)]},
        "node": {
            **an_object("v1", "Node", "n", status={"capacity": {GPUMEM: "14k"}}),
            "metadata": {"name": "n", "labels": labels},
        },
        "namespace": an_object("v1", "Namespace", "immich"),
        "stateful": an_object("apps/v1", "StatefulSet", "portal-stt", "portal-stt", spec=spec),
        "pod": an_object("v1", "Pod", "frigate", "frigate", spec=pod("2k")["spec"]),
        "rollout": an_object("argoproj.io/v1alpha1", "Rollout", "r", "immich", spec=spec),
        "quota": an_object("v1", "ResourceQuota", "q", "frigate", spec={"hard": {f"requests.{GPUMEM}": "2k"}}),
    }


def value(roll: Random, depth: int = 0) -> Any:
    kind = roll.random() if depth < 3 else 1
    if kind < 0.2:
        return [value(roll, depth + 1) for _ in range(roll.randrange(3))]
    if kind < 0.4:
        return {roll.choice(KEYS): value(roll, depth + 1) for _ in range(roll.randrange(3))}
    return roll.choice(ATOMS)


def paths(data: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(data, str) and data[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            yield from paths(json.loads(data), (*path, WITHIN))
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        yield from paths(item, (*path, key))


def changed(data: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    if path[0] == WITHIN:
        return json.dumps(changed(json.loads(data), path[1:], new))
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


def broken(roll: Random) -> Program:
    found = program()
    for _ in range(roll.randint(1, 3)):
        name = roll.choice(list(found))
        among = [path for path in paths(found[name]) if path and path not in (("kind",), ("apiVersion",))]
        found[name] = changed(found[name], roll.choice(among), value(roll))
    return found


@pytest.mark.search
def test_random_values_in_every_field_end_in_a_verdict() -> None:
    for number in range(cases(150, soak=30_000)):
        roll = dice(f"fuzzed graph {number}")
        try:
            lines = judge(broken(roll))
        except Exception as error:
            error.add_note(f"graph {number}")
            raise
        assert max(map(len, lines), default=0) < LONGEST, number


def test_the_program_that_is_broken_breaks_little_by_itself() -> None:
    assert len(graphs.rules_of(judge(program()))) < 7


SEATS = tuple(Seat(name=f"s{n}", tenant=f"t{n % 50}", pool="t4", gpumem_mib=5 + n % 9) for n in range(2000))
WIDE = replace(LEDGER, pools=(replace(T4, nodes=100, device_count=8), BATCH), seats=SEATS)
HUGE = {
    "a million devices": replace(LEDGER, pools=(replace(T4, device_count=10**6), BATCH)),
    "a million replicas": replace(LEDGER, seats=tuple(replace(seat, replicas=10**6) for seat in LEDGER.seats)),
    "a quadrillion of each": replace(
        LEDGER,
        pools=(replace(T4, nodes=10**15, device_count=10**15, memory_mib=10**15), BATCH),
        seats=tuple(replace(seat, replicas=10**15) for seat in LEDGER.seats),
    ),
    "a device of a petabyte, not quite full": replace(
        LEDGER,
        pools=(replace(T4, memory_mib=10**15), BATCH),
        seats=(Seat(name="a", tenant="a", pool="t4", gpumem_mib=10**15 - 1361, replicas=2),),
    ),
    "two thousand seats": WIDE,
    "three thousand pools": replace(LEDGER, pools=tuple(replace(T4, name=f"p{n}") for n in range(3000))),
}


def seconds(found: Program) -> float:
    graph = Graph(objects_of(graphs.resources(found)))
    began = time.process_time()
    list(violations(graph))
    return time.process_time() - began


@pytest.mark.parametrize("case", HUGE)
def test_no_count_is_judged_one_by_one(case: str) -> None:
    prod = min(seconds({"ledger": graphs.ledger_object(LEDGER)} | platform()) for _ in range(3))
    assert seconds(platform(HUGE[case])) < MORE_THAN_PROD * prod


def test_roles_of_one_name_in_many_namespaces_are_not_compared_with_one_another() -> None:
    """The watchdog has a role in the namespace of each tenant."""

    def judged(count: int) -> float:
        pairs = [graphs.role("watchdog", [graphs.rule("pods", "get")], f"tenant-{n}") for n in range(count)]
        return seconds({f"{n} {name}": found for n, pair in enumerate(pairs) for name, found in pair.items()})

    assert judged(1600) < 8 * judged(400)


def test_findings_without_end_are_counted() -> None:
    wrong = {f"pod {n}": an_object("v1", "Pod", f"p{n}", "immich", spec=pod("1.5")["spec"]) for n in range(300)}
    lines = [line for line in judge(platform() | wrong) if line.startswith("seats: ")]
    assert len(lines) == 51
    assert lines[-1] == "seats: and 250 more"


def test_kueues_configuration_is_read_up_to_a_size() -> None:
    program = platform()
    graphs.put(program["kueue"], "values.managerConfig.controllerManagerConfigYaml", "a: " + "[" * 10**6)
    (line,) = judge(program)
    assert line.startswith("queue-coverage: ")
    assert "has 1000003 characters, 65536 at most are read" in line
