"""Tests how the extender answers kube-scheduler's filter and preempt requests."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agents.extender.cache.cache import Cache
from agents.extender.cache.informers import Informers
from agents.extender.cache.pod_info import Entitlement, PodInfo, PodState, PodWithoutGpu, holder_of
from agents.extender.cache.search import Answer
from agents.extender.filter import PlacementVerbs
from agents.extender.protocol import FilterRequest, PreemptRequest
from agents.kube.events import Event
from agents.kube.pods import Pod
from agents.telemetry.reading import PodUse
from tenancy.devices.allocate import MemoryRequest
from tenancy.ledger import Ledger, Seat
from tenancy.units import MIB
from tests.support.devices import bound, feasible, pod_object
from tests.support.fake_cluster import DOMAIN, NAMES, SYSTEM, T4, Served
from tests.support.preempting import devices, hold, pod, verbs_of, victims, waiting_pods

START = datetime(2026, 6, 2, 12, 0, tzinfo=UTC)


@pytest.fixture
def placing(served: Served) -> PlacementVerbs:
    return verbs_of(served)


def test_a_pod_without_gpumem_goes_anywhere(placing: PlacementVerbs) -> None:
    fits = placing.fits(FilterRequest(Pod({"metadata": {"uid": "x"}, "spec": {}}), ("a", "b")), NAMES)
    assert fits.nodes == ("a", "b")


def test_the_schedulers_victims_stand_where_their_going_frees_a_device(placing: PlacementVerbs) -> None:
    hold(placing, "one", 8000, 0)
    hold(placing, "two", 8000, 1)
    assert victims(placing, 8000, "two") == ("two",)


def test_only_pods_of_a_lower_priority_are_victims(placing: PlacementVerbs) -> None:
    hold(placing, "equal", 6000, 0, priority=10)
    hold(placing, "higher", 6000, 1, priority=11)
    assert victims(placing, 7000) is None
    hold(placing, "higher", 6000, 1, priority=9)
    assert victims(placing, 7000) == ("higher",)


@pytest.mark.parametrize("grace", [30, 10**9])
def test_a_pod_that_never_ends_does_not_keep_a_seat_waiting_for_good(placing: PlacementVerbs, grace: int) -> None:
    """After the deadline of its deletion, a terminating pod counts as running again."""
    ends = pod_object("8000", node="a")
    began = datetime(2026, 11, 21, 5, 0, tzinfo=UTC)
    ends["metadata"] |= {
        "deletionTimestamp": (began + timedelta(seconds=grace)).isoformat(),
        "deletionGracePeriodSeconds": grace,
    }
    stuck = holder_of(ends, NAMES)
    assert isinstance(stuck, PodInfo)
    placing.cache.update_pod(replace(stuck, indices=(0,), uuids=None))
    hold(placing, "low", 8000, 1)
    api = placing.informers.api
    api.time = began + timedelta(seconds=60)
    assert victims(placing, 8000) == ()
    api.time = began + timedelta(seconds=700)
    assert victims(placing, 8000) == ("low",)


def test_victims_for_the_sake_of_cpu_are_kept_also_where_gpumem_lacks(placing: PlacementVerbs) -> None:
    """Before the fix, the extender dropped the victims that kube-scheduler had chosen for CPU."""
    placing.cache.update_node(replace(devices(8000, 8000), cpu_milli=2000))
    placing.cache.update_pod(PodWithoutGpu(uid="cpu-hog", node="a", cpu_milli=2000, priority=5))
    hold(placing, "vip", 8000, 0, priority=99)
    hold(placing, "large", 8000, 1, priority=3)
    asking = pod(6000, priority=10)
    asking["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "1"
    query = PreemptRequest(Pod(asking), {"a": ("cpu-hog",)})
    assert placing.victims(query, NAMES) == {"a": ("cpu-hog", "large")}


def test_a_node_that_needs_no_victim_is_told_so(placing: PlacementVerbs) -> None:
    """A kube-scheduler with kubernetes#135486 also sends nodes on which the pod needs no victim."""
    assert victims(placing, 8000) == ()


def test_where_only_measurement_keeps_the_pod_out_and_nobody_can_go_the_node_is_left_out(
    placing: PlacementVerbs,
) -> None:
    """No pod on the node uses the measured memory, so an eviction cannot help."""
    placing.cache.measure("a", {0: 1000, 1: 1000}, at=0.0)
    placing.cache.update_node(devices(8000, node="b"))
    query = PreemptRequest(Pod(pod(6000, priority=10)), {"a": (), "b": ()})
    assert placing.victims(query, NAMES) == {"b": ()}


def test_a_nominee_that_is_refused_before_we_hear_of_an_end_loses_no_room(placing: PlacementVerbs) -> None:
    """Before the fix, a pod with a lower priority got the memory of the victim."""
    hold(placing, "evicted", 8000, 0)
    hold(placing, "vip", 8000, 1, priority=99)
    nominee = {**pod(6000, priority=10), "status": {"nominatedNodeName": "a"}}
    assert placing.fits(FilterRequest(Pod(nominee), ("a",)), NAMES).nodes == ()
    placing.cache.withdraw("new", 0.0)
    placing.cache.remove_pod("evicted")
    lower = {**pod(5000), "metadata": {"uid": "lower", "namespace": "team"}}
    assert placing.fits(FilterRequest(Pod(lower), ("a",)), NAMES).nodes == ()
    assert placing.fits(FilterRequest(Pod(pod(6000, priority=10)), ("a",)), NAMES).nodes == ("a",)
    placing.cache.remove_pod("new")
    assert placing.fits(FilterRequest(Pod(lower), ("a",)), NAMES).nodes == ("a",)


def test_while_others_go_for_a_pod_nobody_more_goes(placing: PlacementVerbs) -> None:
    placing.cache.update_node(devices(8000, node="b"))
    hold(placing, "going", 8000, 0, 99, state=PodState.TERMINATING)
    hold(placing, "vip", 8000, 1, 99)
    placing.cache.update_pod(bound("low", "b", 8000, 0))
    elsewhere = PreemptRequest(Pod(pod(8000, priority=10)), {"b": ("low",)})
    assert placing.victims(elsewhere, NAMES) == {"b": ("low",)}
    nominee = {**pod(8000, priority=10), "status": {"nominatedNodeName": "a"}}
    assert placing.fits(FilterRequest(Pod(nominee), ("a", "b")), NAMES).nodes == ()
    assert placing.victims(elsewhere, NAMES) == {}
    also = PreemptRequest(Pod(pod(8000, priority=10)), {**elsewhere.victims, "a": ("going",)})
    assert placing.victims(also, NAMES) == also.victims


@pytest.mark.parametrize("binding", [False, True])
def test_who_is_being_bound_may_be_a_victim(placing: PlacementVerbs, binding: bool) -> None:
    """A pod can wait for its volumes between its filter and its bind."""
    hold(placing, "vip", 8000, 0, priority=99)
    lower = {**pod(8000, priority=5), "metadata": {"uid": "lower", "namespace": "team"}}
    assert placing.fits(FilterRequest(Pod(lower), ("a",)), NAMES).nodes == ("a",)
    if binding:
        placing.cache.assume("lower", MemoryRequest(8000), "a", 0.0, Entitlement(5))
    assert victims(placing, 6000) is None
    assert victims(placing, 6000, "lower") == ("lower",)


@pytest.mark.parametrize("binding", [False, True])
def test_of_who_is_being_bound_priority_and_sum_count(placing: PlacementVerbs, binding: bool) -> None:
    """Before the fix, the extender treated the pod's priority as 0."""
    hold(placing, "vip", 3000, 0, priority=99)
    hold(placing, "low", 2000, 1, priority=3)
    lower = {**pod(5000, priority=5), "metadata": {"uid": "binding", "namespace": "team"}}
    assert placing.fits(FilterRequest(Pod(lower), ("a",)), NAMES).nodes == ("a",)
    if binding:
        placing.cache.assume("binding", MemoryRequest(5000), "a", 0.0, Entitlement(5))
    assert placing.cache.node("a").by_priority(("low", "binding")) == ("binding", "low")
    assert victims(placing, 8000, "binding") == ("low",)


# Seats.


class Seated:
    def __init__(
        self, served: Served, *, seconds: float = 60, led_since: float = 0.0, time_of_day: datetime = START
    ) -> None:
        self.served, self.events = served, list[Event]()
        clock, self.cache = replace(served.time.clock(), now=lambda: time_of_day), Cache()
        served.time.seconds = 100.0
        self.informers = Informers(
            api=served.api(), cache=self.cache, ledger_namespace=SYSTEM, clock=clock, log=served.log()
        )
        self.informers.ledger = Ledger(
            domain=DOMAIN, pools=(T4,), seats=(Seat(name="s", tenant="team", pool=T4.name, gpumem_mib=6000),)
        )
        self.cache.update_node(replace(devices(8000, 8000), pool=T4.name, floor_mib=1000))
        self.verbs = PlacementVerbs(
            informers=self.informers, cache=self.cache, clock=clock, tell=self.events.append, hold_seconds=seconds,
            led_since=lambda: led_since, waiting=waiting_pods(served, self.cache, clock),
        )  # fmt: skip
        hold(self.verbs, "runaway", 2000, 0)
        self.cache.update_pod(PodWithoutGpu(uid="guest", node="a", cpu_milli=0))
        self.measure(500, 4000)

    def measure(self, *free: int) -> None:
        used = {"runaway": ("GPU-a-0", 7500), "guest": ("GPU-a-1", 4000)}
        uses = tuple(
            PodUse(uid=uid, namespace="n", pod=uid, uuid=uuid, used_bytes=mib * MIB)
            for uid, (uuid, mib) in used.items()
        )
        self.cache.measure("a", dict(enumerate(free)), self.served.time.seconds, uses)

    def query(self, mib: int = 6000, namespace: str = "team", **metadata: str) -> FilterRequest:
        asking = pod(mib, priority=10)
        asking["metadata"] |= {"namespace": namespace, "name": "model", **metadata}
        return FilterRequest(Pod(asking), ("a",))

    def filter(self, mib: int = 6000, namespace: str = "team") -> Answer:
        return self.verbs.fits(self.query(mib, namespace), NAMES)


@pytest.fixture
def seated(served: Served) -> Seated:
    return Seated(served)


def test_a_seat_is_held_back_while_memory_is_given_back_and_then_placed_all_the_same(seated: Seated) -> None:
    fits = seated.filter()
    assert (fits.nodes, fits.refused) == ((), {})
    assert fits.hopeless["a"].endswith("; the seat is held back for at most 60 s for memory in use to be given back")
    seated.served.time.seconds += 59
    seated.measure(500, 4000)
    assert seated.filter().nodes == ()
    seated.served.time.seconds += 1
    assert seated.filter().nodes == ("a",)
    request = seated.verbs.waiting.of("new")
    assert request is not None
    assert [(each.index, each.mib) for each in request.short] == [(1, 3000)]


@pytest.mark.parametrize("off", [timedelta(hours=1), timedelta(hours=-1)], ids=["ahead", "behind"])
@pytest.mark.parametrize(("age", "left"), [(5, 60), (120, None)])
def test_how_old_a_seat_is_the_api_servers_clock_says(
    served: Served, off: timedelta, age: float, left: float | None
) -> None:
    served.cluster.now = START
    seated = Seated(served, led_since=90.0, time_of_day=START + off)
    list(seated.informers.api.items("/api/v1/nodes"))
    query = seated.query(creationTimestamp=(START - timedelta(seconds=age)).isoformat())
    seated.verbs.fits(query, NAMES)
    request = seated.verbs.waiting.of("new")
    assert request is not None
    assert (request.held_until - 100 if request.held_until else None) == left


def test_while_a_seat_is_held_back_nobody_is_evicted_for_it_on_another_node_either(seated: Seated) -> None:
    """kube-scheduler may ask for victims without an earlier filter request."""
    seated.cache.update_node(devices(8000, node="b"))
    seated.cache.update_pod(bound("lower", "b", 5000, 0))
    query = PreemptRequest(seated.query().pod, {"b": ("lower",)})
    seated.filter()
    assert seated.verbs.victims(query, NAMES) == {}
    seated.served.time.seconds += 60
    assert seated.verbs.victims(query, NAMES) == {"b": ("lower",)}


def test_while_a_seat_is_held_back_nobody_else_gets_its_room(seated: Seated) -> None:
    seated.filter()
    seated.served.time.seconds += 59
    seated.measure(8000, 8000)
    now = seated.served.time.seconds
    assert seated.cache.fit("other", MemoryRequest(6000), ["a"], now).nodes == ("a",)
    seated.cache.remove_pod("runaway")
    assert seated.cache.fit("later", MemoryRequest(2001), ["a"], now).nodes == ()
    assert "a" in feasible(seated.cache, MemoryRequest(6000), now, "new")
    assert seated.filter().nodes == ("a",)


@pytest.mark.parametrize(("mib", "namespace"), [(6000, "stranger"), (6001, "team")])
def test_who_is_not_within_a_seat_waits_for_memory(seated: Seated, mib: int, namespace: str) -> None:
    seated.filter(mib, namespace)
    seated.served.time.seconds += 59
    seated.measure(500, 4000)
    fits = seated.filter(mib, namespace)
    assert (fits.nodes, [*fits.refused]) == ((), ["a"])
    assert seated.events == []


@pytest.mark.parametrize(("used_mib", "goes"), [(6000, False), (6500, True)])
def test_for_who_has_no_seat_a_seat_leaves_only_what_it_uses_beyond_its_budget(
    seated: Seated, used_mib: int, goes: bool
) -> None:
    """A new pod of the seat allocates the request again, so an eviction frees only the overshoot."""
    seated.cache.promise(seated.informers.ledger)
    seated.cache.remove_pod("runaway")
    seated.cache.update_pod(replace(bound("seat", "a", 6000, 0, priority=5), namespace="team"))
    use = PodUse(uid="seat", namespace="team", pod="s", uuid="GPU-a-0", used_bytes=used_mib * MIB)
    seated.served.time.seconds += 5
    seated.cache.measure("a", {0: 2600, 1: 0}, seated.served.time.seconds, (use,))
    query = PreemptRequest(seated.query(2000, "stranger").pod, {"a": ()})
    assert seated.verbs.victims(query, NAMES) == ({"a": ("seat",)} if goes else {})
