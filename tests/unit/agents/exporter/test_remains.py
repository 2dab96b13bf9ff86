"""No memory is promised by the extender and by claims at once, whatever the order: reconcile and the exporter as they
are, on a node that goes from one to the other and back."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.exporter.remains import SETTLE_SECONDS, GpumemHeld, Rise, held
from agents.kube.nodes import Node
from agents.reconcile import labels
from agents.reconcile.decide import Bound, ClusterState, NodePatch, decide
from agents.reconcile.slices import Published
from tenancy.ledger import Ledger, PlacementMode, Pool
from tenancy.names import LABEL_GPU_COUNT, LABEL_GPU_MEMORY, OLD_VIEW_SECONDS, Names

NAMES = Names("viktorbarzin.me")
DEVICE_MIB = 14000
UUIDS = ("GPU-0", "GPU-1")
SHOWN = {LABEL_GPU_MEMORY: "15360", LABEL_GPU_COUNT: "2"}
# Shorter than what nothing may be late by.
LATE = OLD_VIEW_SECONDS - 1


def pool(name: str, placement: PlacementMode) -> Pool:
    return Pool(
        name=name,
        node_selector={"gpu": name},
        nodes=1,
        device_count=2,
        memory_mib=15360,
        reserve_mib=1360,
        placement=placement,
    )


def ledger(*, swapped: bool) -> Ledger:
    """Two pools; `swapped`: a rollout said the other of each."""
    modes = (PlacementMode.EXTENDER, PlacementMode.DRA)
    first, second = reversed(modes) if swapped else modes
    return Ledger(domain=NAMES.domain, pools=(pool("a", first), pool("b", second)))


LEDGERS = {swapped: ledger(swapped=swapped) for swapped in (False, True)}


def pod_object(name: str, mib: int, *uuids: str) -> dict[str, Any]:
    limits = {NAMES.gpumem: str(mib), **({NAMES.gpu_count: str(len(uuids))} if len(uuids) > 1 else {})}
    annotations = {NAMES.device_uuid: ",".join(uuids)} if uuids else {}
    spec = {"nodeName": "n", "containers": [{"name": "c", "resources": {"limits": limits, "requests": limits}}]}
    return {"metadata": {"name": name, "namespace": "t", "uid": name, "annotations": annotations}, "spec": spec}


def node_with(gpumem: int | None, where: str = "a") -> Node:
    held_there = {} if gpumem is None else {NAMES.gpumem: str(gpumem), NAMES.gpu_count: "2"}
    return Node(name="n", labels={"gpu": where, **SHOWN}, capacity=held_there, allocatable=held_there)


@dataclass(frozen=True)
class View:
    """What there was to be seen at one moment. `slice_mib` is None where there is no slice."""

    at: int
    where: str
    swapped: bool
    gpumem: int | None
    slice_mib: Mapping[str, int] | None
    node_version: int
    slice_version: int

    @property
    def placement(self) -> PlacementMode | None:
        found = LEDGERS[self.swapped].pool(self.where)
        return found.placement if found else None


@dataclass
class Cluster:
    """One node with two devices. Whoever acts goes by a view that is up to LATE old, or writes up to LATE later."""

    rng: random.Random
    rise: Rise = field(default_factory=Rise)
    view: View = View(0, "a", False, 28000, {}, 0, 0)
    views: list[View] = field(default_factory=list)
    pods: dict[str, tuple[int, str]] = field(default_factory=dict)
    claims: dict[str, tuple[int, str]] = field(default_factory=dict)
    journal: tuple[int, Mapping[str, object]] = (0, {})
    under_way: list[tuple[int, str, Any]] = field(default_factory=list)
    made: int = 0
    offered: int = 0
    returned: int = 0

    def step(self) -> None:
        self._pass(self.rng.choice((0, 1, 1, 2, 3)))
        acts = {
            self.reconcile: 12,
            self.look: 12,
            self.wait: 15,
            self.bind: 12,
            self.claim: 12,
            self.end_pod: 8,
            self.end_claim: 8,
            self.relabel: 0.3,
            self.swap: 0.1,
            self.restart_exporter: 0.1,
            self.restart_kubelet: 0.1,
            self.lose: 0.2,
            self.pause: 0.1,
        }
        self.rng.choices(list(acts), list(acts.values()))[0]()

    def of_device(self, uuid: str) -> int:
        return sum(mib for mib, where in (*self.pods.values(), *self.claims.values()) if where == uuid)

    def _change(self, **new: Any) -> None:
        self.views.append(self.view)
        self.view = replace(self.view, **new)

    def _pass(self, seconds: int) -> None:
        """Time, and each write at its own."""
        end = self.view.at + seconds
        for write in sorted((each for each in self.under_way if each[0] <= end), key=lambda each: each[0]):
            self.under_way.remove(write)
            due, kind, what = write
            self._change(at=max(due, self.view.at))
            self._apply(kind, what)
        self._change(at=end)

    def _old(self) -> View:
        """A view stays what there is to be seen until the next."""
        ends = [*self.views[1:], self.view]
        self.views = [view for view, end in zip(self.views, ends, strict=True) if self.view.at - end.at <= LATE]
        return self.rng.choice([*self.views, self.view])

    # What people and machines do.
    def relabel(self) -> None:
        self._change(where="b" if self.view.where == "a" else "a", node_version=self.view.node_version + 1)

    def swap(self) -> None:
        self._change(swapped=not self.view.swapped)

    def restart_exporter(self) -> None:
        self.rise = Rise(settle_seconds=self.rise.settle_seconds)

    def restart_kubelet(self) -> None:
        zero = {"gpumem": 0, "node_version": self.view.node_version + 1}
        self._change(slice_mib=None, slice_version=self.view.slice_version + 1, **zero)

    def wait(self) -> None:
        """Nothing else happens."""

    def lose(self) -> None:
        """Who wrote was killed before it did."""
        self.under_way.clear()

    def pause(self) -> None:
        """Nobody looks for a while."""
        self._pass(self.rng.randrange(300))

    def end_pod(self) -> None:
        if self.pods:
            del self.pods[self.rng.choice([*self.pods])]

    def end_claim(self) -> None:
        if self.claims:
            del self.claims[self.rng.choice([*self.claims])]

    # The two schedulers, each with a right account of its own.
    def bind(self) -> None:
        seen, mib, uuid = self._old(), self.rng.choice((1000, 5000, 14000)), self.rng.choice(UUIDS)
        mine = sum(size for size, _ in self.pods.values())
        on_device = sum(size for size, where in self.pods.values() if where == uuid)
        has_room = (seen.gpumem or 0) - mine >= mib and on_device + mib <= DEVICE_MIB
        if has_room and seen.placement is PlacementMode.EXTENDER:
            self.made += 1
            self.pods[f"pod-{self.made}"] = (mib, uuid)

    def claim(self) -> None:
        seen, mib, uuid = self._old(), self.rng.choice((1000, 5000, 14000)), self.rng.choice(UUIDS)
        taken = sum(size for size, where in self.claims.values() if where == uuid)
        if taken + mib <= (seen.slice_mib or {}).get(uuid, 0):
            self.made += 1
            self.claims[f"claim-{self.made}"] = (mib, uuid)

    # The agents: what they read is as it is, what they write lands later.
    def reconcile(self) -> None:
        seen, (version, content) = self.view, self.journal
        wanted, node = LEDGERS[seen.swapped], node_with(seen.gpumem, seen.where)
        claimed = frozenset({"n"} if self.claims or any((seen.slice_mib or {}).values()) else ())
        known = labels.remember(wanted, (node,), labels.from_journal(content), seen.at, claimed=claimed)
        bound = Bound(mib=sum(mib for mib, _ in self.pods.values()), devices=len(self.pods))
        state = ClusterState(
            nodes=(node,),
            bound={"n": bound},
            published={"n": Published()},
            claimed=claimed,
            verified=known,
            now=seen.at,
        )
        writes = [action for action in decide(wanted, state) if isinstance(action, NodePatch)]
        self._send("node", [(seen.node_version, write.gpumem_mib) for write in writes])
        self._send("journal", [(version, labels.to_journal(known))])

    def look(self) -> None:
        old, seen = self._old(), self.view
        left = {}
        if old.placement is PlacementMode.DRA:
            if seen.placement is not PlacementMode.DRA or seen.where != old.where:
                self.rise.forget()
                return
            pods = [pod_object(name, mib, uuid) for name, (mib, uuid) in self.pods.items()]
            found = held(node_with(seen.gpumem, seen.where), pods, NAMES)
            free = {uuid: found.left_mib(uuid, DEVICE_MIB) for uuid in UUIDS}
            left = self.rise.settle(seen.slice_mib or {}, free, seen.at)
        else:
            self.rise.forget()
        self._send("slice", [(seen.slice_version, left)])

    def _send(self, kind: str, writes: list[Any]) -> None:
        self.under_way += [(self.view.at + self.rng.choice((0, 0, 1, 5, LATE)), kind, write) for write in writes]

    def _apply(self, kind: str, what: Any) -> None:
        version, content = what
        if kind == "node" and version == self.view.node_version:
            rises = (content or 0) > (self.view.gpumem or 0)
            self.returned += rises and self.offered > self.returned
            self._change(gpumem=content, node_version=version + 1)
        elif kind == "slice" and version == self.view.slice_version and content != self.view.slice_mib:
            self.offered += any(content.values()) and not any((self.view.slice_mib or {}).values())
            self._change(slice_mib=content, slice_version=version + 1)
        elif kind == "journal" and version == self.journal[0]:
            self.journal = (version + 1, content)


def walk(seed: int, steps: int, *, settle_seconds: float = SETTLE_SECONDS) -> tuple[bool, Cluster]:
    """Whether any device was promised twice."""
    cluster = Cluster(random.Random(seed), Rise(settle_seconds=settle_seconds))  # noqa: S311 (repeatable)
    for _ in range(steps):
        cluster.step()
        if max(map(cluster.of_device, UUIDS)) > DEVICE_MIB:
            return True, cluster
    return False, cluster


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_device_is_promised_twice_in_any_order(seed: int) -> None:
    twice, cluster = walk(seed, 1500)
    assert not twice, (cluster.view, cluster.pods, cluster.claims)


def test_the_walks_go_both_ways_and_find_what_is_wrong_without_the_wait() -> None:
    walks = [walk(seed, 1500)[1] for seed in range(4)]
    assert sum(cluster.offered for cluster in walks) > 0
    assert sum(cluster.returned for cluster in walks) > 0
    assert walk(12, 1500, settle_seconds=0)[0]


def test_what_pods_have_is_kept_from_claims_by_device() -> None:
    pods = [pod_object("p", 5000, "GPU-0"), pod_object("q", 6000, "GPU-0", "GPU-1")]
    found = held(node_with(11000), pods, NAMES)
    assert [found.left_mib(uuid, 14000) for uuid in UUIDS] == [6000, 11000]


def test_what_is_advertised_beyond_the_pods_and_pods_without_a_device_are_kept_of_each() -> None:
    assert held(node_with(9000), [pod_object("p", 5000, "GPU-0")], NAMES).left_mib("GPU-1", 14000) == 10000
    assert held(node_with(5000), [pod_object("p", 5000)], NAMES).left_mib("GPU-1", 14000) == 9000
    assert held(node_with(None), [], NAMES).left_mib("GPU-1", 14000) == 14000


def test_what_cannot_be_read_leaves_nothing() -> None:
    assert held(node_with(None), [pod_object("p", 5, "GPU-0", "GPU-1")], NAMES) == GpumemHeld(anywhere=None)
    assert GpumemHeld(anywhere=None).left_mib("GPU-0", 14000) == 0


@pytest.mark.parametrize(
    ("at", "left", "offered"),
    [
        ((0, 50, 100, 149), (9, 9, 9, 9), 5),
        ((0, 50, 100, 150), (9, 9, 9, 9), 9),
        ((0, 50, 100, 150), (9, 7, 9, 9), 7),
        ((0, 50, 100, 150), (9, 3, 9, 9), 5),
        ((0, 50, 111, 150), (9, 9, 9, 9), 5),
    ],
    ids=["too soon", "long enough", "the least of it", "once less", "not looked at for too long"],
)
def test_more_is_offered_when_it_was_left_all_along(at: tuple[int, ...], left: tuple[int, ...], offered: int) -> None:
    rise = Rise()
    found = [rise.settle({"u": 5}, {"u": mib}, now) for now, mib in zip(at, left, strict=True)]
    assert found[-1] == {"u": offered}


def test_less_is_offered_at_once() -> None:
    assert Rise().settle({"u": 5, "v": 5}, {"u": 2, "v": 7}, 0) == {"u": 2, "v": 5}
