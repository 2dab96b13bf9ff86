"""The pods of a node, over a served API: whose a container is, and what its pod declares."""

from typing import Any

import pytest

from agents.node import pods as roster
from agents.node.cgroup import Container
from agents.node.pods import Owner
from agents.runtime.errors import AgentError
from tenancy.ledger import Ledger, Seat
from tests.support.fake_cluster import DOMAIN, NAMES, T4, Served

CHAT = {
    "metadata": {"namespace": "chat", "name": "chat-0", "uid": "uid-chat"},
    "spec": {
        "nodeName": "k8s-node1",
        "containers": [{"name": "model", "resources": {"limits": {NAMES.gpumem: "5k"}}}, {"name": "proxy"}],
    },
    "status": {
        "phase": "Running",
        "containerStatuses": [
            {"name": "model", "containerID": "containerd://aaa"},
            {"name": "proxy", "containerID": "cri-o://bbb"},
        ],
        "initContainerStatuses": [{"name": "fetch", "containerID": "containerd://ccc"}],
        "ephemeralContainerStatuses": [{"name": "debugger", "containerID": "containerd://ddd"}],
    },
}


LEDGER = Ledger(domain=DOMAIN, pools=(T4,), seats=(Seat(name="chat", tenant="chat", pool="t4", gpumem_mib=3000),))


def read(served: Served, *pods: dict[str, Any], ledger: Ledger | None = LEDGER) -> roster.Roster:
    served.cluster.pods += pods
    return roster.read(served.api(), "k8s-node1", ledger)


@pytest.mark.parametrize(
    ("container_id", "name"), [("aaa", "model"), ("bbb", "proxy"), ("ccc", "fetch"), ("ddd", "debugger")]
)
def test_every_kind_of_container_has_its_name_whatever_the_runtime(
    served: Served, container_id: str, name: str
) -> None:
    found = read(served, CHAT)
    container = Container("uid-chat", container_id)
    assert found.owner(container) == Owner(namespace="chat", pod="chat-0", pod_uid="uid-chat", container=name)
    assert found.knows(container)


def test_a_container_that_started_since_belongs_to_its_pod_without_a_name(served: Served) -> None:
    found = read(served, CHAT)
    restarted = Container("uid-chat", "eee")
    assert found.owner(restarted) == Owner(namespace="chat", pod="chat-0", pod_uid="uid-chat")
    assert not found.knows(restarted)


def test_a_pod_that_is_not_listed_keeps_its_uid(served: Served) -> None:
    found = read(served, CHAT)
    assert found.owner(Container("uid-new", "fff")) == Owner(pod_uid="uid-new")
    assert not found.knows(Container("uid-new", "fff"))


def test_a_static_pod_is_found_by_the_hash_in_its_control_group_and_shown_by_the_uid_of_its_mirror(
    served: Served,
) -> None:
    mirror = {
        **CHAT,
        "metadata": {
            "namespace": "kube-system",
            "name": "proxy-node",
            "uid": "uid-mirror",
            "annotations": {"kubernetes.io/config.hash": "8a9a"},
        },
    }
    assert read(served, mirror).owner(Container("8a9a", "aaa")).pod_uid == "uid-mirror"


def test_a_pod_without_any_status_is_listed(served: Served) -> None:
    (pod,) = read(served, {**CHAT, "status": {"phase": "Pending"}}).pods
    assert (pod.declared_mib, pod.containers) == (5000, {})


def test_without_a_ledger_nothing_is_declared(served: Served) -> None:
    (pod,) = read(served, CHAT, ledger=None).pods
    assert pod.declared_mib == 0


def test_a_request_that_cannot_be_read_is_an_error_and_not_a_pod_without_a_budget(served: Served) -> None:
    odd = {**CHAT, "spec": {"containers": [{"name": "model", "resources": {"limits": {NAMES.gpumem: "lots"}}}]}}
    with pytest.raises(AgentError, match=r"pod chat/chat-0: .*'lots' is not a quantity"):
        read(served, odd)


def test_only_the_nodes_own_pods_that_have_not_ended_are_asked_for(served: Served) -> None:
    read(served)
    ((_, url),) = served.cluster.requests
    assert "fieldSelector=spec.nodeName%3Dk8s-node1%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed" in url
