"""Tests the messages between kube-scheduler and the extender."""

from agents.extender import protocol


def test_the_answers_have_the_protocols_fields() -> None:
    assert protocol.filter_result(["a"], {"b": "full"}, {"c": "no GPU"}) == {
        "NodeNames": ["a"],
        "FailedNodes": {"b": "full"},
        "FailedAndUnresolvableNodes": {"c": "no GPU"},
    }
    assert protocol.preemption_result({"a": ("1",)}) == {
        "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "1"}], "NumPDBViolations": 0}}
    }
    assert protocol.error_result("why") == {"Error": "why"}
