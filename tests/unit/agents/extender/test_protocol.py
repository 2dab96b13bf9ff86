"""Tests the messages between kube-scheduler and the extender."""

import json
from typing import Any

import pytest

from agents.extender import protocol
from agents.extender.protocol import VerbError, Victims

POD = {"metadata": {"uid": "u"}, "spec": {}}


def body(**arguments: Any) -> bytes:
    return json.dumps(arguments).encode()


def test_the_answers_have_the_protocols_fields() -> None:
    assert protocol.filter_result(["a"], {"b": "full"}, {"c": "no GPU"}) == {
        "NodeNames": ["a"],
        "FailedNodes": {"b": "full"},
        "FailedAndUnresolvableNodes": {"c": "no GPU"},
    }
    assert protocol.preemption_result({"a": Victims(("1",), 2)}) == {
        "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "1"}], "NumPDBViolations": 2}}
    }
    assert protocol.error_result("why") == {"Error": "why"}


READERS = {
    "filter": protocol.read_filter_request,
    "preempt": protocol.read_preempt_request,
    "bind": protocol.read_bind_request,
}


@pytest.mark.parametrize(
    ("verb", "content"),
    [
        ("bind", b"{"),
        ("bind", b"[]"),
        ("bind", body(PodName="p", PodNamespace="n", PodUID="u")),
        ("filter", body(Pod=POD, NodeNames=None)),
        ("filter", body(Pod=None, NodeNames=[])),
        ("filter", body(Pod={"metadata": {"uid": ""}, "spec": {}}, NodeNames=[])),
        ("preempt", body(Pod=POD, NodeNameToMetaVictims=None)),
        ("preempt", body(Pod=POD, NodeNameToMetaVictims={"a": {"Pods": [{}]}})),
    ],
)
def test_a_request_of_another_shape_is_refused(verb: str, content: bytes) -> None:
    with pytest.raises(VerbError, match="does not follow the extender's protocol"):
        READERS[verb](content)
