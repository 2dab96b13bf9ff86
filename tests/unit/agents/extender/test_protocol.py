"""The extender's protocol, as kube-scheduler speaks it."""

import json
from typing import Any

import pytest

from agents.extender import protocol
from agents.extender.protocol import PodBinding, PodNodes, PodVictims, VerbError, Victims

POD = {"metadata": {"uid": "u"}, "spec": {}}


def body(**arguments: Any) -> bytes:
    return json.dumps(arguments).encode()


def test_a_filter_asks_about_a_pod_and_names_of_nodes() -> None:
    assert protocol.read_pod_nodes(body(Pod=POD, Nodes=None, NodeNames=["a", "b"])) == PodNodes(POD, ("a", "b"))


def test_a_preemption_names_the_victims_of_each_node_by_uid() -> None:
    given = {"a": {"Pods": [{"UID": "1"}], "NumPDBViolations": 2}, "b": {"Pods": None, "NumPDBViolations": 0}}
    asked = protocol.read_pod_victims(body(Pod=POD, NodeNameToVictims=None, NodeNameToMetaVictims=given))
    assert asked == PodVictims(POD, {"a": Victims(("1",), 2), "b": Victims(())})


def test_a_binding_names_pod_and_node() -> None:
    asked = protocol.read_binding(body(PodName="p", PodNamespace="n", PodUID="u", Node="a"))
    assert asked == PodBinding(namespace="n", name="p", uid="u", node="a")


def test_the_answers_have_the_protocols_fields() -> None:
    assert protocol.filtered(["a"], {"b": "full"}, {"c": "no GPU"}) == {
        "NodeNames": ["a"],
        "FailedNodes": {"b": "full"},
        "FailedAndUnresolvableNodes": {"c": "no GPU"},
    }
    assert protocol.preempted({"a": Victims(("1",), 2)}) == {
        "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "1"}], "NumPDBViolations": 2}}
    }
    assert protocol.failed("why") == {"Error": "why"}


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_what_is_no_json_object_is_refused(content: bytes) -> None:
    with pytest.raises(VerbError, match="must be a JSON object"):
        protocol.read_binding(content)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"Pod": POD, "NodeNames": None}, "nodeCacheCapable"),
        ({"Pod": POD, "NodeNames": [1]}, "nodeCacheCapable"),
        ({"Pod": None, "NodeNames": []}, "Pod must be an object"),
        ({"Pod": {"metadata": {}}, "NodeNames": []}, "Pod must be an object"),
        ({"Pod": {"metadata": {}, "spec": {}}, "NodeNames": []}, "uid must be given"),
    ],
)
def test_a_filter_without_its_parts_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(VerbError, match=message):
        protocol.read_pod_nodes(body(**arguments))


@pytest.mark.parametrize(
    ("victims", "message"),
    [
        (None, "nodeCacheCapable"),
        ({"a": []}, "a must be an object"),
        ({"a": {"Pods": [{}]}}, "objects with a UID"),
        ({"a": {"Pods": [], "NumPDBViolations": "1"}}, "whole number"),
    ],
)
def test_victims_of_another_shape_are_refused(victims: object, message: str) -> None:
    with pytest.raises(VerbError, match=message):
        protocol.read_pod_victims(body(Pod=POD, NodeNameToMetaVictims=victims))


@pytest.mark.parametrize("field", ["PodName", "PodNamespace", "PodUID", "Node"])
def test_a_binding_that_lacks_a_field_is_refused(field: str) -> None:
    given = {"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "a"}
    with pytest.raises(VerbError, match="must be given"):
        protocol.read_binding(body(**(given | {field: ""})))
