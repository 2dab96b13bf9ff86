"""Tests that the exporter writes its ResourceSlice only if the devices have changed."""

from dataclasses import replace
from typing import Any

import pytest

from agents.exporter.publish import publish
from agents.exporter.registry import Registry
from agents.kube import nodes
from agents.kube.client import ApiError
from agents.kube.slices import SLICES
from agents.telemetry.device import Survey
from tenancy.choices import Enforce
from tenancy.ledger import Ledger
from tests.support.devices import card
from tests.support.fake_cluster import DOMAIN, NAMES, T4, Served

NODE = "k8s-node1"
PATH = f"{SLICES}/{NAMES.device_driver}-{NODE}"


class Node:
    def __init__(self, served: Served) -> None:
        self.served = served
        self.survey: Survey | None = Survey(devices=(card(),))
        self.ledger: Ledger | None = Ledger(domain=DOMAIN, pools=(T4,))
        self.api = served.api()
        served.cluster.add_node(NODE)

    def publish(self) -> str | None:
        shown = self.served.cluster.nodes[NODE]["metadata"]
        slices = {self.slice["metadata"]["name"]: self.slice} if self.slice else {}
        node = nodes.Node(name="n", uid=shown["uid"], labels=shown["labels"])
        return publish(self.api, NODE, self.survey, Registry(ledger=self.ledger, node=node, slices=slices))

    @property
    def slice(self) -> Any:
        return self.served.cluster.objects.get(PATH)


@pytest.fixture
def node(served: Served) -> Node:
    return Node(served)


def test_a_slice_is_created_when_it_is_missing_and_left_alone_while_nothing_changes(node: Node) -> None:
    assert [node.publish(), node.publish()] == ["created", None]
    assert node.slice["metadata"]["ownerReferences"][0]["uid"] == f"uid-{NODE}"
    del node.served.cluster.objects[PATH]
    assert node.publish() == "created"
    assert [method for method, _ in node.served.cluster.requests] == ["POST", "POST"], "a comparison asks nothing"


def test_without_a_reading_or_a_ledger_the_slice_stays_as_it_is(node: Node) -> None:
    node.publish()
    survey, node.survey = node.survey, None
    assert node.publish() is None
    node.survey, node.ledger = survey, None
    assert node.publish() is None


def test_the_drivers_ability_to_cap_is_published_if_the_nodes_one_pool_asks_for_it(node: Node) -> None:
    capped = replace(T4, enforce=Enforce.DRIVER)
    node.publish()
    for pools, asked in (((capped,), True), ((capped, T4), False), ((capped,), True), ((T4,), False)):
        node.ledger = Ledger(domain=DOMAIN, pools=pools)
        assert node.publish() == "changed"
        assert ("memoryCap" in node.slice["spec"]["devices"][0]["attributes"]) is asked


def test_a_change_by_somebody_else_is_not_overwritten(node: Node) -> None:
    node.publish()
    node.survey = Survey(devices=(card(), card(1)))
    metadata = node.slice["metadata"]
    node.served.cluster.before_patch = lambda: metadata.update(resourceVersion=node.served.cluster.next_version())
    with pytest.raises(ApiError, match="409 Conflict"):
        node.publish()
    node.served.cluster.before_patch = lambda: None
    assert node.publish() == "changed"
    assert len(node.slice["spec"]["devices"]) == 2
