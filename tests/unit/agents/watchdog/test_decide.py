"""Whom the watchdog recycles, whom it leaves alone, and when it does nothing at all."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.kube.pods import Controller
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.reading import ContainerCap, LostDevice, PodUse, Trouble
from agents.watchdog.decide import decide
from agents.watchdog.pods import GpuPod
from agents.watchdog.types import Decision, DeviceVerdict, HourlyCaps, Limits, PassInput, PassState, Recycled, Refused
from tenancy.devices.allocate import Ask
from tenancy.devices.waiting import WaitingSeat
from tenancy.ledger import Seat
from tenancy.units import MIB
from tests.support import search
from tests.support.disorder import live
from tests.support.exporters import card
from tests.support.fake_cluster import T4

NOW = datetime(2026, 6, 2, 12, 0, tzinfo=UTC)
LIMITS = Limits(
    minimum_age_seconds=120,
    cool_down_seconds=600,
    grace_seconds=30,
    caps=HourlyCaps(tenant=6, node=8, total=12),
    waiting_seconds=30,
    bare_pods=False,
    tenants=frozenset({"immich", "llama-swap", "team-a"}),
)
REPLICA_SET = Controller(kind="ReplicaSet", name="immich-ml-5c9d", uid="rs-1")
ARENA = GpuPod(
    namespace="immich",
    name="immich-ml-5c9d-x",
    uid="uid-ml",
    node="n",
    declared_mib=3000,
    started=NOW - timedelta(hours=5),
    workload="immich/Deployment/immich-ml",
    priority=1_200_000,
    owner=REPLICA_SET,
)
LLAMA = replace(
    ARENA,
    namespace="llama-swap",
    name="llama-swap-0",
    uid="uid-llama",
    declared_mib=5000,
    workload="llama-swap/StatefulSet/llama-swap",
    owner=Controller(kind="StatefulSet", name="llama-swap", uid="sts-1"),
)
EMULATOR = replace(ARENA, namespace="android-emulator", name="emulator", uid="uid-emulator", declared_mib=0)


@dataclass
class Watch:
    """A watchdog's passes over one T4 whose users are told by pod; 5 s from one to the next."""

    limits: Limits = LIMITS
    recycled: tuple[Recycled, ...] = ()
    refused: tuple[Refused, ...] = ()
    seats: tuple[WaitingSeat, ...] = ()
    on_record: frozenset[str] = frozenset()
    seconds: float = 100.0
    skew_seconds: float = 0.0
    memory: PassState = field(default_factory=PassState)

    @property
    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds + self.skew_seconds)

    def sample(self, *uses: tuple[GpuPod, int], pods: tuple[GpuPod, ...] | None = None, **reading: Any) -> Decision:
        """One pass over what these pods use, in MiB; `pods` are those that the API shows, else the same."""
        self.seconds += 5
        used_mib = sum(mib for _, mib in uses)
        found = NodeTelemetry(
            **{
                "pool": T4,
                "node": "n",
                "devices": (card(15360 - used_mib),),
                "uses": tuple(
                    PodUse(uid=pod.uid, namespace=pod.namespace, pod=pod.name, uuid="GPU-0", used_bytes=mib * MIB)
                    for pod, mib in uses
                ),
                "age_seconds": self.seconds / 1000,
                "read_at": self.seconds - 1,
                **reading,
            }
        )
        return self.look(found, tuple(pod for pod, _ in uses) if pods is None else pods)

    def look(self, found: NodeTelemetry, pods: tuple[GpuPod, ...], *, server_ahead_seconds: float = 0) -> Decision:
        snapshot = PassInput(
            at=self.seconds,
            local_now=self.now,
            readings=(found,),
            pods=pods,
            recycled=self.recycled,
            refused=self.refused,
            seats=self.seats,
            limits=self.limits,
            on_record=self.on_record,
            memory=self.memory,
        )
        decision = decide(snapshot, self.now + timedelta(seconds=server_ahead_seconds))
        self.memory = decision.memory
        return decision


def verdict(decision: Decision) -> DeviceVerdict:
    (found,) = decision.verdicts
    return found


def recycled(decision: Decision) -> list[str]:
    return [pod.name for found in decision.verdicts for target in found.recycle for pod in target.pods]


def second(watch: Watch, *uses: tuple[GpuPod, int], **reading: Any) -> Decision:
    """The second of two samples that are alike."""
    watch.sample(*uses)
    return watch.sample(*uses, **reading)


@pytest.mark.parametrize(
    ("used_mib", "names"), [(10_824, []), (13_824, []), (13_825, ["immich-ml-5c9d-x"]), (15_360, ["immich-ml-5c9d-x"])]
)
def test_a_runaway_is_recycled_when_less_than_the_floor_is_free(used_mib: int, names: list[str]) -> None:
    assert recycled(second(Watch(), (ARENA, used_mib))) == names


def test_one_sample_is_not_enough_and_asks_for_another() -> None:
    watch = Watch()
    first = watch.sample((ARENA, 14_000))
    assert (recycled(first), first.unsettled, verdict(first).samples) == ([], True, 1)
    then = watch.sample((ARENA, 14_000))
    assert (recycled(then), then.unsettled) == (["immich-ml-5c9d-x"], False)


def test_a_sample_above_the_floor_begins_the_count_anew() -> None:
    watch = Watch()
    watch.sample((ARENA, 14_000))
    watch.sample((ARENA, 9_000))
    assert recycled(watch.sample((ARENA, 14_000))) == []


def test_the_same_reading_asked_for_twice_is_one_sample() -> None:
    watch = Watch()
    watch.sample((ARENA, 14_000), read_at=100.0, age_seconds=1)
    assert recycled(watch.sample((ARENA, 14_000), read_at=100.4, age_seconds=6)) == []
    assert recycled(watch.sample((ARENA, 14_000), read_at=109.0, age_seconds=2)) == ["immich-ml-5c9d-x"]


def test_an_answer_that_does_not_change_is_one_sample_and_after_half_a_minute_stale() -> None:
    watch = Watch()
    for _ in range(7):
        frozen = watch.sample((ARENA, 14_000), age_seconds=2, read_at=watch.seconds + 3)
        assert recycled(frozen) == []
        assert verdict(frozen).samples == 1
    (blind,) = watch.sample((ARENA, 14_000), age_seconds=2, read_at=watch.seconds + 3).blind
    assert (blind.trouble, blind.problem) == (
        Trouble.STALE,
        "nothing in it has changed for 35 s, not even its age",
    )


def test_the_one_that_ran_away_goes_and_not_a_large_one_that_is_a_little_over() -> None:
    assert recycled(second(Watch(), (LLAMA, 5_100), (ARENA, 9_000))) == ["immich-ml-5c9d-x"]


def test_who_is_within_the_budget_stays_whatever_the_pressure() -> None:
    decision = second(Watch(), (LLAMA, 5_000), (EMULATOR, 10_000))
    assert (recycled(decision), verdict(decision).samples) == ([], 2)


def test_when_nothing_restores_the_floor_the_one_that_is_furthest_over_goes_alone() -> None:
    decision = second(Watch(), (LLAMA, 5_050), (ARENA, 3_100), (EMULATOR, 7_000))
    assert recycled(decision) == ["immich-ml-5c9d-x"]
    assert not verdict(decision).restores


def test_what_terminates_is_credited_until_a_minute_after_its_grace() -> None:
    going = replace(ARENA, gone_by=NOW + timedelta(seconds=130))
    decision = second(Watch(), (going, 9_000), (LLAMA, 5_500))
    assert (recycled(decision), verdict(decision).going_mib) == ([], 9_000)
    late = Watch(seconds=190)
    assert recycled(second(late, (going, 9_000), (LLAMA, 5_500))) == ["llama-swap-0"]


AN_HOUR = replace(ARENA, gone_by=NOW + timedelta(seconds=3600), going_seconds=3600)


def test_a_grace_of_an_hour_counts_as_going_for_no_longer_than_a_recycle_would_give() -> None:
    """It began to terminate at second 0; 30 s of grace and a minute later nobody waits for it."""
    assert recycled(second(Watch(seconds=70), (AN_HOUR, 9_000), (LLAMA, 5_500))) == []
    assert recycled(second(Watch(seconds=90), (AN_HOUR, 3_100), (LLAMA, 11_000))) == ["llama-swap-0"]


def test_who_takes_an_hour_to_go_is_recycled_for_good_though_its_workload_cools_down() -> None:
    journal = (Recycled(at=NOW, workload=ARENA.workload, pods=("another",)),)
    assert recycled(second(Watch(seconds=90, recycled=journal), (AN_HOUR, 9_000), (LLAMA, 5_500))) == [ARENA.name]


@pytest.mark.parametrize(("seconds", "expected"), [(40, []), (60, [ARENA.name])])
def test_a_recycle_that_ended_before_its_eviction_spares_nobody_for_long(seconds: float, expected: list[str]) -> None:
    """The journal says it, the pod does not terminate: the run was stopped in between, or the request was lost."""
    journal = (Recycled(at=NOW, workload=ARENA.workload, pods=(ARENA.uid,), node="n"),)
    assert recycled(second(Watch(seconds=seconds, recycled=journal), (ARENA, 14_000))) == expected


def test_a_process_that_outlives_its_grace_is_left_alone() -> None:
    hanging = replace(ARENA, gone_by=NOW + timedelta(seconds=10), going_seconds=10)
    (spared,) = verdict(second(Watch(), (hanging, 14_000))).spared
    assert (spared.lasting, "still holds its memory" in spared.why) == (True, True)


def refused(*pods: GpuPod, ago_seconds: int) -> tuple[Refused, ...]:
    at = NOW + timedelta(seconds=110 - ago_seconds)
    return tuple(Refused(at=at, workload=pod.workload, why="violates a budget") for pod in pods)


def test_the_choice_is_made_without_who_was_refused_and_with_it_again_after_a_minute() -> None:
    watch = Watch(refused=refused(ARENA, ago_seconds=59))
    decision = second(watch, (LLAMA, 5_900), (ARENA, 9_000))
    assert recycled(decision) == ["llama-swap-0"]
    (spared,) = verdict(decision).spared
    assert spared.why == "its recycle was refused 59 s ago; it is tried again after 60 s: violates a budget"
    assert recycled(second(Watch(refused=refused(ARENA, ago_seconds=60)), (ARENA, 14_000))) == [ARENA.name]


def test_what_a_watchdog_has_just_recycled_is_credited_before_it_is_seen_to_terminate() -> None:
    journal = (Recycled(at=NOW + timedelta(seconds=100), workload=ARENA.workload, pods=(ARENA.uid,)),)
    assert recycled(second(Watch(recycled=journal), (ARENA, 9_000), (LLAMA, 5_500))) == []
    assert recycled(second(Watch(recycled=journal, seconds=130), (ARENA, 9_000), (LLAMA, 5_500))) == ["llama-swap-0"]


@pytest.mark.parametrize(
    ("pod", "limits", "why", "lasting"),
    [
        (replace(ARENA, owner=None), LIMITS, "no controller would recreate it", True),
        (replace(ARENA, static=True), LIMITS, "static pod", True),
        (replace(ARENA, namespace="games"), LIMITS, "games is not a tenant with a budget", True),
        (replace(ARENA, started=NOW), LIMITS, "it is 110 s old; it is left alone for 120 s", False),
    ],
)
def test_left_alone_is(pod: GpuPod, limits: Limits, why: str, lasting: bool) -> None:
    decision = second(Watch(limits=limits), (pod, 14_000))
    (spared,) = verdict(decision).spared
    assert (recycled(decision), spared.lasting) == ([], lasting)
    assert why in spared.why


def test_a_pod_that_names_its_node_as_its_owner_is_no_static_pod_for_that() -> None:
    """Any tenant that knows the node's uid may write so."""
    owned = replace(ARENA, owner=Controller(kind="Node", name="n", uid="n"))
    assert recycled(second(Watch(), (owned, 14_000))) == [ARENA.name]


def test_a_bare_pod_goes_when_told() -> None:
    watch = Watch(limits=replace(LIMITS, bare_pods=True))
    assert recycled(second(watch, (replace(ARENA, owner=None), 14_000))) == ["immich-ml-5c9d-x"]


@pytest.mark.parametrize(("ago_seconds", "names"), [(599, []), (600, ["immich-ml-5c9d-x"])])
def test_a_recycled_workload_is_left_alone_under_whatever_name_its_pod_returns(
    ago_seconds: int, names: list[str]
) -> None:
    entry = Recycled(at=NOW + timedelta(seconds=110 - ago_seconds), workload=ARENA.workload, pods=("its first pod",))
    assert recycled(second(Watch(recycled=(entry,)), (ARENA, 14_000))) == names


def hour_of(count: int, ago_seconds: int = 3599) -> tuple[Recycled, ...]:
    return hour_of_tenant("others", "m", count, ago_seconds)


def hour_of_tenant(tenant: str, node: str, count: int, ago_seconds: int = 3599) -> tuple[Recycled, ...]:
    at = NOW + timedelta(seconds=110 - ago_seconds)
    return tuple(
        Recycled(at=at, workload=f"{tenant}/Deployment/{index}", pods=(f"{index}",), node=node)
        for index in range(count)
    )


@pytest.mark.parametrize(
    ("journal", "capped"),
    [
        (hour_of_tenant("immich", "m", 5), None),
        (hour_of_tenant("immich", "m", 6), "6 recycles an hour of immich"),
        (hour_of_tenant("immich", "m", 6, 3600), None),
        (hour_of_tenant("frigate", "m", 9), None),
        (hour_of_tenant("frigate", "n", 7), None),
        (hour_of_tenant("frigate", "n", 8), "8 recycles an hour on a node"),
        (hour_of(11), None),
        (hour_of(12), "12 recycles an hour of all tenants together"),
    ],
)
def test_beyond_an_hourly_cap_it_refuses(journal: tuple[Recycled, ...], capped: str | None) -> None:
    decision = second(Watch(recycled=journal), (ARENA, 14_000))
    assert (recycled(decision) == [], verdict(decision).capped) == (capped is not None, capped)


def test_a_recycle_that_its_pod_outlived_is_not_one_of_the_hours() -> None:
    lost = Recycled(at=NOW, workload="frigate/Deployment/frigate", pods=(LLAMA.uid,), node="n")
    watch = Watch(recycled=(*hour_of_tenant("frigate", "n", 7), lost))
    assert recycled(second(watch, (ARENA, 9_000), (LLAMA, 4_900))) == [ARENA.name]


def test_of_recycles_of_the_same_pod_one_counts() -> None:
    again = Recycled(at=NOW, workload="frigate/Deployment/0", pods=("0",), node="n")
    watch = Watch(recycled=(*hour_of_tenant("frigate", "n", 7), again))
    assert recycled(second(watch, (ARENA, 14_000))) == [ARENA.name]


def test_a_tenant_at_its_cap_leaves_the_others_of_the_device_to_be_recycled() -> None:
    watch = Watch(recycled=hour_of_tenant("immich", "n", 6))
    decision = second(watch, (ARENA, 9_000), (LLAMA, 5_900))
    assert (recycled(decision), verdict(decision).capped) == (["llama-swap-0"], "6 recycles an hour of immich")


def test_with_one_left_of_the_brake_the_worst_of_a_set_of_two_goes() -> None:
    decision = second(Watch(recycled=hour_of(11)), (ARENA, 3_900), (LLAMA, 5_800), (EMULATOR, 5_500))
    assert recycled(decision) == ["immich-ml-5c9d-x"]
    assert verdict(decision).capped == "12 recycles an hour of all tenants together"


def test_who_declared_nothing_is_named_and_not_an_offender() -> None:
    (undeclared,) = verdict(Watch().sample((EMULATOR, 154))).undeclared
    assert (undeclared.pod, undeclared.used_mib) == (EMULATOR.reference, 154)


def test_of_a_node_whose_pods_were_not_listed_the_exporter_knows_who_declared_nothing() -> None:
    known = PodUse(uid="u", namespace="n", pod="p", uuid="GPU-0", used_bytes=154 * MIB, declares=False)
    (undeclared,) = verdict(Watch().sample((EMULATOR, 154), pods=(), uses=(known,))).undeclared
    assert (undeclared.pod.namespace, undeclared.pod.name, undeclared.pod.uid) == ("n", "p", "u")
    nameless = replace(known, namespace="", pod="")
    assert verdict(Watch().sample((EMULATOR, 154), pods=(), uses=(nameless,))).undeclared == ()


def test_who_is_on_record_without_a_budget_is_named_only_under_pressure() -> None:
    watch = Watch(on_record=frozenset({"android-emulator"}))
    assert verdict(watch.sample((EMULATOR, 154))).undeclared == ()
    assert len(verdict(watch.sample((EMULATOR, 14_000))).undeclared) == 1


JOB = replace(
    ARENA,
    namespace="team-a",
    name="train-0",
    uid="uid-0",
    workload="team-a/Workload/job-train",
    owner=Controller(kind="Job", name="train", uid="job-1"),
    queued_as="job-train",
)


def test_the_pods_of_a_queued_job_are_recycled_as_one() -> None:
    other = replace(JOB, name="train-1", uid="uid-1")
    decision = second(Watch(), (JOB, 7_000), (other, 7_000))
    assert recycled(decision) == ["train-0", "train-1"]
    assert len(verdict(decision).recycle) == 1


def test_a_queued_job_may_live_on_for_as_long_as_kueue_takes() -> None:
    journal = (Recycled(at=NOW, workload=JOB.workload, pods=(JOB.uid,), node="n"),)
    assert recycled(second(Watch(seconds=80, recycled=journal), (JOB, 14_000))) == []


@pytest.mark.parametrize("owner", [None, Controller(kind="Job", name="other", uid="job-2")])
def test_a_pod_that_names_anothers_workload_is_not_of_its_job_and_does_not_speak_for_it(
    owner: Controller | None,
) -> None:
    """Label and annotation are anybody's to write; nothing would recreate a pod without an owner, so it is spared."""
    forged = replace(JOB, name="a-forged-0", uid="uid-forged", owner=owner)
    decision = second(Watch(), (forged, 6_000), (JOB, 8_000))
    assert "train-0" in recycled(decision)
    assert all(len(target.pods) == 1 for target in verdict(decision).recycle)


# Found by the disorder below, and shrunk.
def test_a_queued_jobs_young_pods_do_not_protect_its_old_ones() -> None:
    """Else pods of a minute each, one after another and a little over, would keep the runaway next to them for good."""
    young = replace(JOB, name="train-1", uid="uid-1", started=NOW + timedelta(seconds=100))
    decision = second(Watch(), (JOB, 11_000), (young, 3_500))
    assert recycled(decision) == ["train-0", "train-1"]
    assert recycled(second(Watch(), (replace(JOB, started=young.started), 11_000), (young, 3_500))) == []


def test_a_pod_of_a_queued_job_that_hangs_in_its_end_is_not_taken_for_the_others() -> None:
    hanging = replace(JOB, name="train-1", uid="uid-1", gone_by=NOW - timedelta(seconds=300))
    decision = second(Watch(), (JOB, 7_000), (hanging, 7_000))
    assert recycled(decision) == ["train-0"]
    (spared,) = verdict(decision).spared
    assert (spared.target.first.name, spared.lasting) == ("train-1", True)


def test_a_queued_job_that_is_stopped_takes_all_its_pods() -> None:
    other = replace(JOB, name="train-1", uid="uid-1")
    journal = (Recycled(at=NOW + timedelta(seconds=100), workload=JOB.workload, pods=(JOB.uid,)),)
    assert recycled(second(Watch(recycled=journal), (other, 9_000), (LLAMA, 5_500))) == []


@pytest.mark.parametrize("seconds", [3, 5])
def test_pods_of_seconds_delay_a_recycle_by_one_sample_and_make_no_node_implausible(seconds: int) -> None:
    """Each ends between the exporter's reading and the list of pods; the next one has its memory again."""
    watch, acted = Watch(), []
    for sample in range(6):
        short = replace(LLAMA, uid=f"uid-{sample // (2 if seconds == 5 else 1)}", declared_mib=3000)
        decision = watch.sample((ARENA, 11_500), (short, 3_000), pods=(ARENA,))
        assert decision.blind == ()
        acted.append(recycled(decision))
    assert acted[:3] == [[], [], []], "what they had counts as going"
    assert acted[3] == [ARENA.name]


def test_a_pod_that_has_ended_and_is_still_listed_counts_as_going() -> None:
    decision = second(Watch(), (replace(ARENA, ended=True), 9_000), (LLAMA, 5_500))
    assert (recycled(decision), verdict(decision).going_mib, decision.blind) == ([], 9_000, ())


def test_an_exporter_that_goes_on_showing_a_pod_that_is_gone_is_not_believed() -> None:
    watch = Watch()
    decisions = [watch.sample((ARENA, 14_000), pods=()) for _ in range(8)]
    assert [recycled(each) for each in decisions] == [[]] * 8
    (blind,) = decisions[-1].blind
    assert (blind.trouble, blind.gpu) == (Trouble.IMPLAUSIBLE, 0)
    assert "pod immich/immich-ml-5c9d-x (uid-ml) uses it, and does not run there, for over 30 s" in blind.problem


@pytest.mark.parametrize(
    ("pods", "problem"),
    [
        ((replace(ARENA, node="m"),), "is immich/immich-ml-5c9d-x on n there, and immich/immich-ml-5c9d-x on m to"),
        ((replace(ARENA, name="other"),), "pod uid-ml is immich/immich-ml-5c9d-x on n there, and immich/other on n"),
    ],
)
def test_pods_of_which_telemetry_and_the_api_disagree_are_no_reason_to_act(
    pods: tuple[GpuPod, ...], problem: str
) -> None:
    watch = Watch()
    watch.sample((ARENA, 14_000))
    decision = watch.sample((ARENA, 14_000), pods=pods)
    (blind,) = decision.blind
    assert (decision.verdicts, blind.trouble) == ((), Trouble.IMPLAUSIBLE)
    assert problem in blind.problem


SEAT = Seat(name="tts", tenant="tts", pool="t4", gpumem_mib=4000)


def waiting(mib: int = 4000, seconds: float = 60, pool: str = "t4") -> WaitingSeat:
    seat = replace(SEAT, pool=pool)
    created = NOW + timedelta(seconds=105 - seconds)
    return WaitingSeat(uid="w", namespace="tts", name="tts-0", ask=Ask(mib), seats=(seat,), priority=0, created=created)


def test_for_a_seat_that_waits_who_is_over_is_recycled_though_the_floor_is_kept() -> None:
    """4860 MiB are free, the floor is 1536; a seat of 4000 needs 5536. ARENA declared 3000 and has 5000."""
    uses = ((ARENA, 5_000), (LLAMA, 5_000), (EMULATOR, 500))
    assert recycled(second(Watch(), *uses)) == []
    decision = second(Watch(seats=(waiting(),)), *uses)
    assert recycled(decision) == [ARENA.name]
    assert (verdict(decision).seats_mib, verdict(decision).seats) == (676, ("tts/tts-0",))


def test_for_a_seat_that_waits_nobody_within_the_budget_is_recycled() -> None:
    assert recycled(second(Watch(seats=(waiting(),)), (LLAMA, 5_000), (EMULATOR, 5_500))) == []


@pytest.mark.parametrize(
    ("seat", "why"),
    [
        (waiting(seconds=29), "the gates have their time first"),
        (waiting(mib=7000), "the ledger has no room"),
        (waiting(mib=3000), "it could load now"),
        (waiting(pool="other"), "it waits for another pool"),
    ],
)
def test_for_a_seat_nobody_is_recycled_where(seat: WaitingSeat, why: str) -> None:
    uses = ((ARENA, 5_000), (LLAMA, 5_000), (EMULATOR, 500))
    assert recycled(second(Watch(seats=(seat,)), *uses)) == [], why


def test_what_goes_counts_for_a_seat_that_waits() -> None:
    going = replace(EMULATOR, gone_by=NOW + timedelta(seconds=130))
    decision = second(Watch(seats=(waiting(),)), (ARENA, 5_000), (LLAMA, 4_300), (going, 900))
    assert (recycled(decision), verdict(decision).seats_mib, verdict(decision).missing_mib) == ([], 376, 0)


def test_the_device_where_memory_is_already_coming_free_stays_the_one_for_the_seat() -> None:
    """GPU-0 lacks 676, and 6000 of it are going; GPU-1 lacks 636, by an offender who may stay."""
    going = replace(ARENA, uid="uid-gone", gone_by=NOW + timedelta(seconds=130), uuids=("GPU-0",))
    llama = replace(LLAMA, uuids=("GPU-1",))
    decision = two_cards(Watch(seats=(waiting(),)), (going, 6_000, 0), (EMULATOR, 4_500, 0), (llama, 10_460, 1))
    assert recycled(decision) == []
    assert [(each.seats_mib, each.missing_mib) for each in decision.verdicts] == [(676, 0), (0, 0)]


def test_a_seat_for_which_too_little_is_coming_free_has_the_rest_freed_on_the_same_device() -> None:
    going = replace(EMULATOR, uid="uid-gone", name="gone", gone_by=NOW + timedelta(seconds=130))
    arena, llama = replace(ARENA, uuids=("GPU-0",)), replace(LLAMA, uuids=("GPU-1",))
    decision = two_cards(Watch(seats=(waiting(),)), (going, 900, 0), (arena, 9_960, 0), (llama, 10_460, 1))
    assert recycled(decision) == [ARENA.name]
    assert [(each.seats_mib, each.missing_mib) for each in decision.verdicts] == [(1036, 136), (0, 0)]


def test_the_device_that_a_pod_was_placed_on_is_the_one_whose_room_it_takes() -> None:
    """GPU-0 has no room by the ledger, GPU-1 has: what is short there is freed."""
    llama, arena = replace(LLAMA, uuids=("GPU-0",), declared_mib=11_000), replace(ARENA, uuids=("GPU-1",))
    decision = two_cards(Watch(seats=(waiting(),)), (llama, 1_000, 0), (arena, 12_000, 1))
    assert recycled(decision) == [ARENA.name]


def test_for_a_seat_nobody_is_recycled_on_a_device_that_takes_no_new_pod() -> None:
    uses = ((ARENA, 5_000), (LLAMA, 5_000), (EMULATOR, 500))
    watch = Watch(seats=(waiting(),))
    watch.sample(*uses, excluded=frozenset({"GPU-0"}))
    assert recycled(watch.sample(*uses, excluded=frozenset({"GPU-0"}))) == []


def test_a_pod_whose_name_the_exporter_does_not_know_yet_is_told_by_its_uid() -> None:
    watch = Watch()
    use = PodUse(uid=ARENA.uid, namespace="", pod="", uuid="GPU-0", used_bytes=14_000 * MIB)
    watch.sample((ARENA, 14_000), uses=(use,))
    assert recycled(watch.sample((ARENA, 14_000), uses=(use,))) == ["immich-ml-5c9d-x"]


@pytest.mark.parametrize(
    ("reading", "trouble"),
    [
        ({"devices": (), "trouble": Trouble.MISSING, "problem": "HTTP 503"}, Trouble.MISSING),
        ({"uses": (), "unknown_uses": {"GPU-0": "2 processes"}}, Trouble.PARTIAL),
    ],
)
def test_a_sample_that_is_not_whole_is_no_reason_to_act_and_ends_the_row(
    reading: dict[str, Any], trouble: Trouble
) -> None:
    watch = Watch()
    watch.sample((ARENA, 14_000))
    (blind,) = watch.sample((ARENA, 14_000), **reading).blind
    assert blind.trouble is trouble
    assert recycled(watch.sample((ARENA, 14_000))) == []
    assert recycled(watch.sample((ARENA, 14_000))) == ["immich-ml-5c9d-x"]


@pytest.mark.parametrize("jump_seconds", [-3600, -6, 6, 3600])
def test_a_clock_that_jumps_ends_the_row(jump_seconds: float) -> None:
    watch = Watch()
    watch.sample((ARENA, 14_000))
    watch.skew_seconds = jump_seconds
    decision = watch.sample((ARENA, 14_000))
    assert (decision.verdicts, decision.problem) == ((), f"the clock jumped by {jump_seconds:+.0f} s")
    assert recycled(watch.sample((ARENA, 14_000))) == []
    assert recycled(watch.sample((ARENA, 14_000))) == ["immich-ml-5c9d-x"]


@pytest.mark.parametrize(
    ("journal", "server_ahead_seconds", "problem"),
    [
        ((), 31, "the API server's clock and this node's are 31 s apart"),
        ((), -31, "the API server's clock and this node's are 31 s apart"),
        (hour_of(1, -60), 0, "the journal tells of a recycle in 60 s: the clock went back"),
    ],
)
def test_clocks_that_disagree_are_no_reason_to_act(
    journal: tuple[Recycled, ...], server_ahead_seconds: float, problem: str
) -> None:
    watch = Watch(recycled=journal, seconds=110)
    found = NodeTelemetry(pool=T4, node="n", devices=(card(100),), uses=())
    decision = watch.look(found, (), server_ahead_seconds=server_ahead_seconds)
    assert (decision.verdicts, decision.problem) == ((), problem)


def two_cards(
    watch: Watch, *uses: tuple[GpuPod, int, int], shown: tuple[int, ...] = (0, 1), **reading: Any
) -> Decision:
    """The second of two samples of a node with two devices, one of which may be lost."""
    devices = tuple(card(15360 - sum(mib for _, mib, at in uses if at == gpu), gpu) for gpu in shown)
    found = tuple(
        PodUse(uid=pod.uid, namespace="", pod="", uuid=f"GPU-{gpu}", used_bytes=mib * MIB) for pod, mib, gpu in uses
    )
    pods = tuple({pod.uid: pod for pod, _, _ in uses}.values())
    watch.sample(devices=devices, uses=found, pods=pods, **reading)
    return watch.sample(devices=devices, uses=found, pods=pods, **reading)


def test_a_device_whose_users_are_not_known_blinds_no_other() -> None:
    decision = two_cards(Watch(), (ARENA, 14_000, 1), unknown_uses={"GPU-0": "NVML does not report 1 process"})
    (blind,) = decision.blind
    assert (recycled(decision), blind.gpu, blind.trouble) == ([ARENA.name], 0, Trouble.PARTIAL)


def test_a_device_that_is_lost_blinds_no_other() -> None:
    gone = LostDevice(gpu=0, trouble=Trouble.MISSING, problem="its exporter cannot read it")
    decision = two_cards(Watch(), (ARENA, 14_000, 1), shown=(1,), lost=(gone,), problem=str(gone))
    (blind,) = decision.blind
    assert (recycled(decision), blind.gpu, blind.problem) == ([ARENA.name], 0, "its exporter cannot read it")


def test_a_device_on_which_telemetry_and_api_disagree_blinds_no_other() -> None:
    decision = two_cards(Watch(), (replace(LLAMA, node="m"), 14_000, 0), (ARENA, 14_000, 1))
    assert ([blind.gpu for blind in decision.blind], recycled(decision)) == ([0], [ARENA.name])


def test_only_the_pressed_device_is_looked_at() -> None:
    decision = two_cards(Watch(), (LLAMA, 9_000, 0), (ARENA, 14_000, 1))
    assert [found.pressed for found in decision.verdicts] == [False, True]
    assert recycled(decision) == ["immich-ml-5c9d-x"]


# Found by the disorder below, and shrunk.
def test_a_pod_that_is_over_on_two_pressed_devices_is_recycled_once() -> None:
    assert recycled(two_cards(Watch(), (ARENA, 14_000, 0), (ARENA, 14_000, 1))) == ["immich-ml-5c9d-x"]


LIVES, PASSES = search.cases(30, soak=500), 20


@pytest.mark.search
@pytest.mark.parametrize("part", range(10))
def test_no_order_of_events_makes_it_do_wrong(part: int) -> None:
    """In all 6,000 decisions, 100,000 in a soak; tests/support/disorder.py says what would be wrong."""
    recycles = sum(live(search.dice(f"life {part} {index}"), PASSES) for index in range(LIVES))
    assert recycles > LIVES / 4, "it does act"


@settings(max_examples=50)
@given(st.randoms(use_true_random=False), st.integers(1, 12))
def test_nor_does_an_order_that_hypothesis_thinks_of(dice: Random, passes: int) -> None:
    live(dice, passes)


def held(pod: GpuPod, container: str = "main", why_not: str = "") -> ContainerCap:
    return ContainerCap(uid=pod.uid, namespace=pod.namespace, pod=pod.name, container=container, why_not=why_not)


def test_whom_the_driver_holds_is_no_offender_and_it_is_said_if_he_is_over_nevertheless() -> None:
    """What is not counted, such as managed memory, is nothing that a recycle of this one would be fair for."""
    found = second(Watch(), (ARENA, 12000), (LLAMA, 2500), caps=(held(ARENA), held(LLAMA)))
    assert recycled(found) == []
    (spared,) = verdict(found).spared
    assert (spared.target.first, spared.lasting) == (ARENA, True)
    assert "the driver holds it to its budget" in spared.why


@pytest.mark.parametrize("why", ["no-limit", "no-cgroup", "other-limit", "no-budget"])
def test_whom_the_driver_should_hold_and_does_not_is_recycled_as_ever(why: str) -> None:
    """One container of two is enough."""
    caps = (held(ARENA), held(ARENA, "sidecar", why))
    assert recycled(second(Watch(), (ARENA, 12000), (LLAMA, 2500), caps=caps)) == [ARENA.name]


def test_a_container_that_is_not_held_is_named_and_one_that_restarts_is_not() -> None:
    caps = (held(LLAMA, "a", "no-limit"), held(LLAMA, "b", "no-cgroup"), held(LLAMA, "", "unknown-container"))
    (uncapped,) = Watch().sample((LLAMA, 100), caps=caps).uncapped
    assert (uncapped.pod, uncapped.node, uncapped.container, uncapped.why) == (LLAMA.reference, "n", "a", "no-limit")
