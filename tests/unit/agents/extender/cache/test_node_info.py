"""Tests that a copy of a node does not change when the extender updates the node."""

from agents.extender.cache.node_info import NodeInfo
from agents.extender.cache.pod_info import PodState
from agents.extender.cache.snapshot import usage_of
from tests.support.devices import bound, inventory


def test_a_copy_stays_as_it_is_while_the_node_changes() -> None:
    """A scrape reads the copies of all nodes without holding the cache's lock."""
    node = NodeInfo("N")
    node.inventory = inventory("N", 8000, 4000)
    node.pods["bound"] = bound("bound", "N", 5000, 0)
    node.recount()
    seen = node.copy()
    before = usage_of(seen)
    node.pods["more"] = bound("more", "N", 1000, 1)
    node.pods["assumed"] = bound("assumed", "N", 500, 1, state=PodState.ASSUMED)
    node.recount()
    del node.pods["bound"]
    node.inventory = inventory("N", 2000)
    node.recount()
    assert usage_of(seen) == before
    assert usage_of(node) != before
