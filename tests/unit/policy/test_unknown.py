"""Tests values that are unknown in the preview. If a rule needs such a value, it reports a violation."""

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout

import pytest

from policy.rule import an_object
from policy.unknown import Unknown, UnprovenError, is_unknown, unknowns
from tenancy import names
from tests.support import graphs
from tests.support.consumers import FULL
from tests.support.graphs import UNKNOWN, judge, judged, platform, put

POD = "spec.template.spec"
UNTIL = "is unknown until the update; write its value in the program, not another resource's output"

LOOKS: dict[str, Callable[[Unknown], object]] = {
    "compare": lambda value: value == "x",
    "be compared": lambda value: value == value,  # noqa: PLR0124
    "find": lambda value: value in ("a", "b"),
    "search": lambda value: "a" in value,
    "ask for truth": bool,
    "order": lambda value: value > 3,
    "loop": list,
    "count": len,
    "look up": lambda value: value["x"],
    "call": lambda value: value.get("x"),
    "hash": lambda value: {value: 1},
    "format": lambda value: f"{value}",
    "test for a string": lambda value: isinstance(value, str),
    "test for a map": lambda value: isinstance(value, Mapping),
    "test for a list": lambda value: isinstance(value, Sequence | list | tuple),
}


@pytest.mark.parametrize("look", LOOKS)
def test_to_look_at_an_unknown_value_is_to_be_refused(look: str) -> None:
    with pytest.raises(UnprovenError, match=rf"^spec\.x {UNTIL}$"):
        LOOKS[look](Unknown("spec.x"))


def test_an_unknown_value_is_found_and_shown_without_a_look() -> None:
    value = {"a": [1, Unknown("a.1")], "b": Unknown("b")}
    assert list(unknowns(value)) == ["a.1", "b"]
    assert is_unknown(value["b"])
    assert repr(value["b"]) == "<unknown b>"


# Each case has an object, the path of an unknown value, and the rules that must report it.
UNKNOWNS = {
    "the ledger": ("ledger", f"data.{names.LEDGER_KEY}".replace(".json", ""), "ledger"),
    "all containers": ("llama-swap", f"{POD}.containers", "counted"),
    "the pod": ("llama-swap", POD, "counted priorities"),
    "a namespace": ("llama-swap", "metadata.namespace", "counted"),
    "the nodes": ("llama-swap", f"{POD}.nodeSelector", "seats device"),
    "a queue behind a door": ("local queue", "spec.clusterQueue", "queue-coverage"),
}


@pytest.mark.parametrize("case", UNKNOWNS)
def test_an_unknown_value_that_a_rule_reads_is_a_violation(case: str) -> None:
    name, path, rules = UNKNOWNS[case]
    program = platform()
    put(program[name], path, UNKNOWN) if name != "ledger" else program[name].update(data={names.LEDGER_KEY: UNKNOWN})
    reported = judge(program)
    assert set(rules.split()) <= graphs.rules_of(reported)
    assert any("cannot be proven" in line and "is unknown until the update" in line for line in reported), reported


def test_an_unknown_value_that_no_rule_reads_is_none() -> None:
    program = platform()
    put(program["llama-swap"], f"{POD}.containers.0.env", [{"name": "URL", "value": UNKNOWN}])
    put(program["llama-swap"], "status", UNKNOWN)
    program["secret"] = an_object("v1", "Secret", "x", "immich", data=UNKNOWN)
    assert judge(program) == []


def test_who_names_what_has_an_unknown_name_is_told_of_which_object() -> None:
    program = platform()
    put(program["local queue"], "metadata.name", UNKNOWN)
    put(program["job"], "metadata.labels", {names.KUEUE_QUEUE_LABEL: "mine"})
    (line,) = [line for line in judge(program) if line.startswith("queue-coverage: Job ")]
    assert line == f"queue-coverage: Job team-a/train: cannot be proven: LocalQueue local queue: metadata.name {UNTIL}"


def told(manifest: graphs.Manifest) -> list[str]:
    with redirect_stdout(io.StringIO()) as said:
        assert judged({"x": manifest}, {"ledger": FULL.to_data()}) == []
    return said.getvalue().splitlines()[1:]


def test_what_is_unknown_outside_of_the_tenants_namespaces_is_a_warning() -> None:
    web = an_object("apps/v1", "Deployment", "x", "web", spec={"template": UNKNOWN})
    assert told(web)[0] == (
        f"gpu-tenancy: warning: counted: Deployment web/x: cannot be proven: spec.template {UNTIL}; only admission "
        "judges its pods"
    )
    elsewhere = an_object("apps/v1", "Deployment", "x", UNKNOWN, spec={"template": graphs.pod("1", "cpu")})
    assert f"Deployment x: cannot be proven: metadata.namespace {UNTIL}; only admission" in told(elsewhere)[0]


def test_an_unknown_namespace_is_a_violation_for_who_asks_for_a_gpu() -> None:
    found = an_object("apps/v1", "Deployment", "x", UNKNOWN, spec={"template": graphs.pod("1", names.GPU)})
    assert judge({"x": found}, {"ledger": FULL.to_data()}) == [
        f"admission: Deployment x: cannot be proven: metadata.namespace {UNTIL}"
    ]


@pytest.mark.parametrize(("namespace", "refused"), [("immich", True), ("web", False)])
def test_what_is_unknown_of_a_kind_that_runs_pods_is_a_violation_for_a_tenant(namespace: str, refused: bool) -> None:
    found = an_object("ray.io/v1", "RayCluster", "x", namespace, spec={"headGroupSpec": {"template": UNKNOWN}})
    assert bool(judge({"x": found}, {"ledger": FULL.to_data()})) is refused


@pytest.mark.parametrize("api_version", ["yaml/v2", "helm.sh/v4", "kustomize/v2"])
def test_objects_that_are_not_rendered_yet_get_a_warning(api_version: str) -> None:
    kind = {"yaml/v2": "ConfigGroup", "helm.sh/v4": "Chart", "kustomize/v2": "Directory"}[api_version]
    component = {"apiVersion": api_version, "kind": kind, "resources": UNKNOWN}
    hidden = f"gpu-tenancy: warning: {kind} x: its objects are not in the graph while {{}} {UNTIL}; only admission"
    assert told(component) == [f"{hidden.format('its input')} judges their pods"]
    assert told({**component, "resources": [], "values": {"a": [UNKNOWN]}}) == [
        f"{hidden.format('values.a.0')} judges their pods"
    ]
    assert told({**component, "resources": []}) == []


def test_an_unknown_list_gets_a_warning() -> None:
    assert (
        "its objects are not in the graph while items"
        in told({"apiVersion": "apps/v1", "kind": "DeploymentList", "items": UNKNOWN})[0]
    )
