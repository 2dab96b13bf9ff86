"""Tests that reconcile's cache is the same after watch events as after a new list."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agents.reconcile import cache
from agents.reconcile.cache import NodeCache
from agents.reconcile.decide import BoundRequests
from tenancy.ledger import Ledger
from tests.support.fake_cluster import LABELS, NAMES, T4, Served
from tests.support.nvidia_slices import Gpu, nvidia_slice

GPUMEM = NAMES.gpumem
LEDGER = Ledger(domain=NAMES.domain, pools=(T4,))
PLACES = ("a", "b")


def node(name: str, gpumem: str) -> dict[str, Any]:
    held = {"cpu": "8", GPUMEM: gpumem}
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": dict(LABELS)}
    return {"kind": "Node", "metadata": metadata, "status": {"capacity": held, "allocatable": held}}


def pod(name: str, place: str, gpumem: str) -> dict[str, Any]:
    resources = {"limits": {GPUMEM: gpumem}} if gpumem else {}
    spec = {"nodeName": place, "containers": [{"name": "c", "resources": resources}]}
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "n", "uid": f"uid-{name}"}, "spec": spec}


def slice_of(name: str, place: str, driver: str) -> dict[str, Any]:
    found = nvidia_slice(place, [Gpu(uuid=f"GPU-{name}")])
    return {**found, "metadata": {"name": name}, "spec": {**found["spec"], "driver": driver}}


def listed(objects: Mapping[str, dict[str, Any]]) -> NodeCache:
    seen = NodeCache(names=NAMES)
    for found in objects.values():
        {"Node": seen.nodes, "Pod": seen.seats, "ResourceSlice": seen.slices}[found["kind"]].put(found)
    return seen


amounts = st.sampled_from(["", "1", "3k", "5000"])
changes = st.one_of(
    st.builds(node, st.sampled_from(PLACES), amounts.filter(bool)),
    st.builds(pod, st.sampled_from("pqr"), st.sampled_from(PLACES), amounts),
    st.builds(slice_of, st.sampled_from("st"), st.sampled_from(PLACES), st.sampled_from(["gpu.nvidia.com", "nic"])),
    st.sampled_from(
        [f"Node {name}" for name in PLACES]
        + [f"Pod {name}" for name in "pqr"]
        + [f"ResourceSlice {name}" for name in "st"]
    ),
)


@given(st.lists(changes), st.lists(changes))
def test_after_every_event_it_is_what_a_list_would_show(before: list[Any], after: list[Any]) -> None:
    there: dict[str, dict[str, Any]] = {}
    seen = listed(there)
    for change in [*before, None, *after]:
        last = seen.snapshot()
        if change is None:
            seen = listed(there)
            continue
        if isinstance(change, str):
            if (gone := there.pop(change, None)) is None:
                continue
            event = {"type": "DELETED", "object": gone}
        else:
            key = f"{change['kind']} {change['metadata']['name']}"
            event = {"type": "MODIFIED" if key in there else "ADDED", "object": change}
            there[key] = change
        assert seen.apply(event) or seen.snapshot() == last
    assert seen.snapshot() == listed(there).snapshot()


def test_a_heartbeat_changes_nothing_but_the_version_to_write_on() -> None:
    seen = listed({"a": node("a", "1")})
    beat = node("a", "1")
    beat["metadata"]["resourceVersion"] = "2"
    beat["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-21T05:00:00Z"}]
    assert not seen.apply({"type": "MODIFIED", "object": beat})
    assert seen.nodes.kept["a"].resource_version == "2"


def test_it_is_read_with_the_versions_to_watch_from(served: Served) -> None:
    served.cluster.add_node()
    served.cluster.add_pod("ml", "k8s-node1", "3k")
    served.cluster.add_pod("other", "k8s-node1", "0")
    seen = cache.read(served.api(), LEDGER)
    assert seen.snapshot().bound == {"k8s-node1": BoundRequests(mib=3000)}
    assert [node.name for node in seen.snapshot().nodes] == ["k8s-node1"]
    assert [(source.path, source.resource_version) for source in seen.sources] == [
        ("/api/v1/nodes", str(served.cluster.version)),
        ("/api/v1/pods", str(served.cluster.version)),
    ]
