"""The node's ResourceSlice is written when it must be, and only then."""

from dataclasses import replace
from typing import Any

import pytest

from agents.exporter.pod_names import OwnNode, Registry
from agents.exporter.publish import Publisher
from agents.kube.client import ApiError
from agents.runtime.errors import AgentError
from agents.telemetry.device import Fault, Survey
from agents.telemetry.resourceslice import SLICES
from tenancy.ledger import Ledger, PlacementMode, Pool, Sharing
from tests.support.fake_cluster import DOMAIN, NAMES, SYSTEM, T4, Served
from tests.support.fake_cluster import Fault as Failure
from tests.unit.agents.telemetry.test_resourceslice import card

NODE = "k8s-node1"
PATH = f"{SLICES}/{NAMES.device_driver}-{NODE}"


class Stop(Exception):  # noqa: N818 (ends a thread that is for ever)
    pass


class Node:
    """A node with a card, its publisher, and what both last showed."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.survey: Survey | None = Survey(devices=(card(),))
        self.ledger: Ledger | None = Ledger(domain=DOMAIN, pools=(T4,))
        served.cluster.add_node(NODE)
        self.publisher = Publisher(
            api=served.api(),
            node=NODE,
            ledger_namespace=SYSTEM,
            survey=lambda: self.survey,
            registry=self.registry,
            clock=served.time.clock(),
            interval_seconds=5,
        )

    def registry(self) -> Registry:
        """As the informer has it, at once."""
        shown = self.served.cluster.nodes[NODE]["metadata"]
        slices = {self.slice["metadata"]["name"]: self.slice} if self.slice else {}
        return Registry(ledger=self.ledger, node=OwnNode(uid=shown["uid"], labels=shown["labels"]), slices=slices)

    @property
    def slice(self) -> Any:
        return self.served.cluster.objects.get(PATH)

    @property
    def writes(self) -> list[str]:
        return [method for method, _ in self.served.cluster.requests if method != "GET"]

    def passes(self, number: int) -> None:
        """So many looks, of the thread that looks for ever."""

        def count() -> None:
            if len(self.served.time.slept) == number:
                raise Stop

        self.served.time.meanwhile = count
        with pytest.raises(Stop):
            self.publisher.keep_publishing(self.served.log())


@pytest.fixture
def node(served: Served) -> Node:
    return Node(served)


def test_a_new_nodes_devices_are_published_under_the_node(node: Node) -> None:
    assert node.publisher.publish() == "created"
    assert node.slice["spec"]["nodeName"] == NODE
    assert node.slice["spec"]["devices"][0]["capacity"]["gpumem"]["value"] == "14000Mi"
    assert node.slice["metadata"]["ownerReferences"][0]["uid"] == f"uid-{NODE}"


def test_nothing_is_written_while_nothing_changes(node: Node) -> None:
    node.publisher.publish()
    assert [node.publisher.publish(), node.publisher.publish()] == [None, None]
    assert node.writes == ["POST"]
    assert len(node.served.cluster.requests) == 1, "to look costs the API nothing"


def test_a_slice_that_somebody_deleted_is_back_at_the_next_look(node: Node) -> None:
    node.publisher.publish()
    del node.served.cluster.objects[PATH]
    assert node.publisher.publish() == "created"


def test_a_device_that_fails_and_recovers_is_tainted_meanwhile(node: Node) -> None:
    node.publisher.publish()
    node.survey = Survey(devices=(), unreadable=(0,))
    assert node.publisher.publish() == "changed"
    assert node.slice["spec"]["devices"][0]["taints"][0]["value"] == Fault.UNREADABLE
    node.survey = Survey(devices=(card(),))
    assert node.publisher.publish() == "changed"
    assert "taints" not in node.slice["spec"]["devices"][0]
    assert node.slice["spec"]["pool"]["generation"] == 1


def test_without_a_reading_or_a_ledger_the_slice_stays_as_it_is(node: Node) -> None:
    node.publisher.publish()
    survey, node.survey = node.survey, None
    assert node.publisher.publish() is None
    node.survey, node.ledger = survey, None
    assert node.publisher.publish() is None
    assert node.writes == ["POST"]


def test_a_node_offers_what_its_own_pool_says(node: Node) -> None:
    whole = Pool(name="a", node_selector={"gpu": "t4"}, nodes=1, device_count=1, sharing=Sharing.WHOLE)
    other = Pool(name="b", node_selector={"gpu": "a10"}, nodes=1, device_count=1, memory_mib=9000)
    node.ledger = Ledger(domain=DOMAIN, pools=(whole, other))
    node.publisher.publish()
    assert "gpumem" not in node.slice["spec"]["devices"][0]["capacity"]
    node.ledger = Ledger(domain=DOMAIN, pools=(other, T4))
    assert node.publisher.publish() == "changed"
    assert node.slice["spec"]["devices"][0]["capacity"]["gpumem"]["value"] == "14000Mi"


def test_a_node_that_several_pools_match_offers_nothing_and_says_why(node: Node) -> None:
    node.publisher.publish()
    more = Pool(name="more", node_selector={}, nodes=1, device_count=1, memory_mib=15360)
    node.ledger = Ledger(domain=DOMAIN, pools=(T4, more))
    assert node.publisher.publish() == (
        "changed, which offers nothing: the node is matched by pools.t4, pools.more: a node belongs to one pool; "
        "narrow a node_selector or relabel the node"
    )
    assert "gpumem" not in node.slice["spec"]["devices"][0]["capacity"]


def test_a_change_that_came_between_is_not_overwritten(node: Node) -> None:
    node.publisher.publish()
    node.survey = Survey(devices=(card(), card(1)))
    metadata = node.slice["metadata"]
    node.served.cluster.before_patch = lambda: metadata.update(resourceVersion=node.served.cluster.next_version())
    with pytest.raises(ApiError, match="409 Conflict"):
        node.publisher.publish()
    node.served.cluster.before_patch = lambda: None
    assert node.publisher.publish() == "changed"
    assert len(node.slice["spec"]["devices"]) == 2


def test_the_thread_tells_once_of_a_problem_and_of_its_end(node: Node) -> None:
    node.served.cluster.faults.append(Failure("POST", SLICES, 403, "Forbidden", "no", times=2))
    node.passes(4)
    assert [(line["level"], line["message"].partition(":")[0]) for line in node.served.lines()] == [
        ("error", "the node's ResourceSlice stays as it is"),
        ("info", "ResourceSlice created"),
        ("info", "the node's ResourceSlice can be written again"),
    ]
    assert node.served.time.slept == [5, 5, 5, 5]


MOVED = replace(T4, placement=PlacementMode.DRA)


def offered(node: Node) -> str | None:
    found: str | None = node.slice["spec"]["devices"][0]["capacity"].get("gpumem", {}).get("value")
    return found


def look_for(node: Node, seconds: int) -> None:
    """Every 50 s."""
    for _ in range(seconds // 50):
        node.served.time.sleep(50)
        node.publisher.publish()


def moved_to(node: Node, pool: Pool) -> None:
    node.ledger = Ledger(domain=DOMAIN, pools=(pool,))
    node.served.cluster.add_ledger(pool)


def test_a_node_that_moves_offers_claims_what_old_pods_leave_when_it_was_left_for_long(node: Node) -> None:
    moved_to(node, replace(T4, placement=PlacementMode.EXTENDER))
    node.publisher.publish()
    assert offered(node) is None
    node.served.cluster.add_pod("old", NODE, "5000")
    node.served.cluster.add_node(NODE, gpumem="5000")
    moved_to(node, MOVED)
    node.publisher.publish()
    look_for(node, 100)
    assert offered(node) is None
    look_for(node, 50)
    assert offered(node) == "9000Mi"
    node.served.cluster.remove_pod("old")
    look_for(node, 200)
    assert offered(node) == "9000Mi", "the node advertises it still"
    node.served.cluster.add_node(NODE)
    look_for(node, 200)
    assert offered(node) == "14000Mi"
    before = len(node.served.cluster.requests)
    look_for(node, 50)
    assert len(node.served.cluster.requests) == before, "nothing is kept back, so nothing is asked"
    moved_to(node, replace(T4, placement=PlacementMode.EXTENDER))
    node.publisher.publish()
    assert offered(node) is None


def test_a_look_that_finds_another_pool_than_was_known_says_so_and_waits_again(node: Node) -> None:
    moved_to(node, MOVED)
    node.publisher.publish()
    node.served.cluster.add_ledger(replace(T4, placement=PlacementMode.EXTENDER))
    with pytest.raises(AgentError, match="its pool has just changed"):
        node.publisher.publish()
    assert offered(node) is None
