"""Tests how the node agents find the pod and the budget of a container."""

import pytest

from agents.node.cgroup import Container
from agents.node.pods import Owner
from tests.support.mirrors import mirror
from tests.support.node_pods import CHAT, read


@pytest.mark.parametrize(
    ("container_id", "name"), [("aaa", "model"), ("bbb", "proxy"), ("ccc", "fetch"), ("ddd", "debugger")]
)
def test_every_kind_of_container_has_its_name_whatever_the_runtime(container_id: str, name: str) -> None:
    found = read(CHAT)
    container = Container("uid-chat", container_id)
    assert found.owner(container) == Owner(namespace="chat", pod="chat-0", pod_uid="uid-chat", container=name)


def test_a_container_that_started_since_belongs_to_its_pod_without_a_name() -> None:
    found = read(CHAT)
    restarted = Container("uid-chat", "eee")
    assert found.owner(restarted) == Owner(namespace="chat", pod="chat-0", pod_uid="uid-chat")


def test_a_pod_that_is_not_listed_keeps_its_uid() -> None:
    found = read(CHAT)
    assert found.owner(Container("uid-new", "fff")) == Owner(pod_uid="uid-new")


def test_nobody_takes_anothers_control_group_for_its_own() -> None:
    thief = {
        **CHAT,
        "metadata": {
            "namespace": "thief",
            "name": "t",
            "uid": "uid-thief",
            **mirror("uid-chat", "k8s-node1"),
        },
    }
    assert read(CHAT, thief).owner(Container("uid-chat", "aaa")).namespace == "chat"
