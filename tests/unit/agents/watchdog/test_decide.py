"""Tests which pods the watchdog recycles. If the exporters' readings are doubtful, it recycles no pod."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from agents.kube.pods import Controller
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.reading import ContainerCap, LostDevice, Trouble
from agents.watchdog.pods import GpuPod
from agents.watchdog.types import Limits, Recycled
from tests.support.exporters import card
from tests.support.fake_cluster import T4
from tests.support.watching import (
    ARENA,
    EMULATOR,
    ENDING,
    JOB,
    LIMITS,
    LLAMA,
    NOW,
    Use,
    Watch,
    after,
    entry,
    recycled,
    second,
    two_cards,
    verdict,
)


def recycles(tenant: str, count: int, at: float = 110 - 3599) -> tuple[Recycled, ...]:
    names = [f"{tenant}/Deployment/{index}" for index in range(count)]
    return tuple(Recycled(at=after(at), workload=name, pods=(name[-1],), node="m") for name in names)


def caps(*why_not: str, pod: GpuPod = ARENA) -> tuple[ContainerCap, ...]:
    return tuple(
        ContainerCap(uid=pod.uid, namespace=pod.namespace, pod=pod.name, container=f"c{n}", why_not=why)
        for n, why in enumerate(why_not)
    )


AN_HOUR = replace(ARENA, gone_by=after(3600), going_seconds=3600)
REFUSED = {ARENA.workload: "forbidden"}
BOTH = [(ARENA, 8_000), (LLAMA, 6_900)]
OTHER_JOB = Controller(kind="Job", name="other", uid="job-2")
YOUNG_JOB = replace(JOB, name="train-1", uid="uid-1", started=after(100))
Case = tuple[dict[str, Any], list[Use], list[str]]

CASES: dict[str, Case] = {
    "nobody while the floor is free to the MiB": ({}, [(ARENA, 13_824)], []),
    "a runaway below the floor": ({}, [(ARENA, 13_825)], ["arena"]),
    "the runaway and not a large pod that is a little over": ({}, [(LLAMA, 5_100), (ARENA, 9_000)], ["arena"]),
    "nobody within the budget under any pressure": ({}, [(LLAMA, 5_000), (EMULATOR, 10_000)], []),
    "nobody while enough terminates": ({}, [(ENDING, 9_000), (LLAMA, 5_500)], []),
    "another a minute after a grace period": ({"seconds": 190}, [(ENDING, 8_000), (LLAMA, 6_500)], ["llama"]),
    "nobody within 30 s of a grace period of an hour": ({"seconds": 70}, [(AN_HOUR, 9_000), (LLAMA, 5_500)], []),
    "another after that": ({"seconds": 90}, [(AN_HOUR, 3_100), (LLAMA, 11_000)], ["llama"]),
    "the pod that takes an hour to end, though its workload cools down": (
        {"seconds": 90, "recycled": (entry(0, ARENA, "another"),)},
        [(AN_HOUR, 9_000), (LLAMA, 5_500)],
        ["arena"],
    ),
    "nobody 50 s after an eviction that never came": (
        {"seconds": 40, "recycled": (entry(0, ARENA),)},
        [(ARENA, 14_000)],
        [],
    ),
    "the same pod after a minute": ({"seconds": 60, "recycled": (entry(0, ARENA),)}, [(ARENA, 14_000)], ["arena"]),
    "another in the run of a refusal": ({"refused": REFUSED}, BOTH, ["llama"]),
    "nobody while a recycle is not visible yet": ({"recycled": (entry(100, ARENA),)}, BOTH, []),
    "another 30 s after that": ({"recycled": (entry(100, ARENA),), "seconds": 130}, BOTH, ["llama"]),
    "no replacement of a recycled pod in its cool-down": (
        {"recycled": (entry(110 - 599, ARENA, "first"),)},
        [(ARENA, 14_000)],
        [],
    ),
    "a replacement after the cool-down": (
        {"recycled": (entry(110 - 600, ARENA, "first"),)},
        [(ARENA, 14_000)],
        ["arena"],
    ),
    "a pod whose owner is a Node that its tenant made up": (
        {},
        [(replace(ARENA, owner=Controller(kind="Node", name="n", uid="n")), 14_000)],
        ["arena"],
    ),
    "a tenant below its limit": ({"recycled": recycles("immich", 5)}, [(ARENA, 14_000)], ["arena"]),
    "a tenant whose limit was reached an hour ago": (
        {"recycled": recycles("immich", 6, 110 - 3600)},
        [(ARENA, 14_000)],
        ["arena"],
    ),
    "a tenant whatever others have recycled": ({"recycled": recycles("frigate", 9)}, [(ARENA, 14_000)], ["arena"]),
    "the other tenant where one is at its limit": ({"recycled": recycles("immich", 6)}, BOTH, ["llama"]),
    "a tenant one of whose recycles its pod outlived": (
        {"recycled": (*recycles("immich", 5), entry(0, replace(ARENA, workload="immich/Deployment/x"), LLAMA.uid))},
        [(ARENA, 9_000), (LLAMA, 4_900)],
        ["arena"],
    ),
    "a tenant one of whose recycles was tried twice": (
        {"recycled": (*recycles("immich", 5), *recycles("immich", 1, 0))},
        [(ARENA, 14_000)],
        ["arena"],
    ),
    "a queued Job's pods as one": (
        {},
        [(JOB, 7_000), (replace(YOUNG_JOB, started=JOB.started), 7_000)],
        ["train-0", "train-1"],
    ),
    "a queued Job with its young pods, which protect no old one": (
        {},
        [(JOB, 11_000), (YOUNG_JOB, 3_500)],
        ["train-0", "train-1"],
    ),
    "no queued Job all of whose pods are young": (
        {},
        [(replace(JOB, started=YOUNG_JOB.started), 11_000), (YOUNG_JOB, 3_500)],
        [],
    ),
    "no queued Job that Kueue has yet to stop": ({"seconds": 40, "recycled": (entry(0, JOB),)}, [(JOB, 14_000)], []),
    "a queued Job that Kueue has not stopped after a minute": (
        {"seconds": 60, "recycled": (entry(0, JOB),)},
        [(JOB, 14_000)],
        ["train-0"],
    ),
    "a queued pod group, whose pods have no controller": ({}, [(replace(JOB, owner=None), 14_000)], ["train-0"]),
    "nobody while a queued Job's other pods stop": (
        {"recycled": (entry(100, JOB, "another"),)},
        [(YOUNG_JOB, 9_000), (LLAMA, 5_500)],
        [],
    ),
    "nobody for a pod that has ended and is still listed": (
        {},
        [(replace(ARENA, ended=True), 9_000), (LLAMA, 5_500)],
        [],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_recycles(case: str) -> None:
    watch, uses, names = CASES[case]
    assert recycled(second(Watch(**watch), *uses)) == names


def test_one_sample_is_not_enough_and_asks_for_another() -> None:
    watch = Watch()
    first = watch.sample((ARENA, 14_000))
    assert (recycled(first), first.unsettled, verdict(first).samples) == ([], True, 1)
    then = watch.sample((ARENA, 14_000))
    assert (recycled(then), then.unsettled) == (["arena"], False)


def test_the_same_reading_read_twice_is_one_sample() -> None:
    watch = Watch()
    watch.sample((ARENA, 14_000), read_at=100.0, age_seconds=1)
    assert recycled(watch.sample((ARENA, 14_000), read_at=100.4, age_seconds=6)) == []
    assert recycled(watch.sample((ARENA, 14_000), read_at=109.0, age_seconds=2)) == ["arena"]


def test_an_answer_that_does_not_change_is_one_sample() -> None:
    watch = Watch()
    for _ in range(7):
        frozen = watch.sample((ARENA, 14_000), age_seconds=2, read_at=watch.seconds + 3)
        assert (recycled(frozen), verdict(frozen).samples) == ([], 1)


def test_who_is_36_mib_over_is_not_evicted_for_a_shortfall_of_116_nor_after_any_cool_down() -> None:
    """The watchdog would evict the same pod again and again."""
    watch = Watch()
    for _ in range(300):
        found = watch.sample((ARENA, 3_036), (LLAMA, 5_000), (EMULATOR, 5_904))
        assert recycled(found) == []
    assert verdict(found).missing_mib == 116
    assert [(target.first.name, target.overshoot_mib) for target in verdict(found).too_little] == [("arena", 36)]


LEAST = replace(LIMITS, least_free_mib=512)


@pytest.mark.parametrize(
    ("limits", "uses", "names"),
    [
        (LIMITS, [(LLAMA, 5_050), (ARENA, 3_100), (EMULATOR, 7_000)], []),
        (LIMITS, [(ARENA, 4_400), (EMULATOR, 10_900)], []),
        (LEAST, [(ARENA, 4_400), (EMULATOR, 10_900)], ["arena"]),
        (LEAST, [(ARENA, 4_400), (LLAMA, 5_500), (EMULATOR, 5_400)], ["arena", "llama"]),
        (LEAST, [(ARENA, 3_400), (EMULATOR, 11_900)], []),
        (LEAST, [(ARENA, 4_000), (EMULATOR, 10_848)], []),
        (replace(LIMITS, least_free_mib=99_999), [(ARENA, 3_100), (EMULATOR, 10_725)], ["arena"]),
    ],
    ids=[
        "nobody who restores too little of the floor",
        "nor on a device that is nearly full, unless it is declared",
        "declared, who restores the least free memory",
        "who restore the floor before who restores the least",
        "nobody who restores less than the least",
        "nobody while the least is free",
        "the least free memory is at most the floor",
    ],
)
def test_recycles_restore_the_floor_or_the_least_free_memory(limits: Limits, uses: list[Use], names: list[str]) -> None:
    assert recycled(second(Watch(limits=limits), *uses)) == names


def test_who_may_not_be_recycled_yet_does_not_count_as_restoring_the_floor() -> None:
    """The recycle of the pod llama alone does not bring the device above its floor."""
    uses = [(ARENA, 4_000), (LLAMA, 5_500), (EMULATOR, 5_500)]
    limited = verdict(second(Watch(recycled=recycles("immich", 6)), *uses))
    assert (limited.recycle, limited.limited, limited.too_little) == ((), "6 recycles an hour of immich", ())
    assert recycled(second(Watch(), *uses)) == ["arena", "llama"]


@pytest.mark.parametrize(
    ("pod", "given", "why", "lasting"),
    [
        (replace(ARENA, owner=None), {}, "no controller would recreate it", True),
        (replace(ARENA, static=True), {}, "static pod", True),
        (replace(ARENA, namespace="games"), {}, "games is not a tenant with a budget", True),
        (replace(ARENA, started=NOW), {}, "it is 110 s old; it is left alone for 120 s", False),
        (replace(ARENA, gone_by=after(10), going_seconds=10), {}, "still holds its memory", True),
        (
            ARENA,
            {"recycled": (entry(0, ARENA, "first"),)},
            "it was recycled 110 s ago; it is left alone for 600",
            False,
        ),
        (
            ARENA,
            {"refused": REFUSED},
            "its recycle was refused, and the next run tries again: forbidden",
            False,
        ),
    ],
)
def test_an_offender_is_left_alone_with_the_reason(pod: GpuPod, given: dict[str, Any], why: str, lasting: bool) -> None:
    decision = second(Watch(**given), (pod, 14_000))
    (spared,) = verdict(decision).spared
    assert (recycled(decision), spared.lasting) == ([], lasting)
    assert why in spared.why


@pytest.mark.parametrize("owner", [None, OTHER_JOB])
def test_a_pod_that_names_anothers_workload_does_not_protect_the_job(owner: Controller | None) -> None:
    """Any tenant may write the label and the annotation."""
    forged = replace(JOB, name="a-forged-0", uid="uid-forged", owner=owner)
    decision = second(Watch(), (forged, 6_000), (JOB, 8_000), caps=caps("", pod=forged))
    assert "train-0" in recycled(decision)


@pytest.mark.parametrize("each", [1, 2])
def test_pods_of_seconds_delay_a_recycle_by_one_sample_and_make_no_node_implausible(each: int) -> None:
    """The pod has ended between the exporter's reading and the watchdog's list."""
    watch, acted = Watch(), []
    for sample in range(4):
        short = replace(LLAMA, uid=f"uid-{sample // each}", declared_mib=3000)
        decision = watch.sample((ARENA, 11_500), (short, 3_000), pods=(ARENA,))
        assert decision.blind == ()
        acted.append(recycled(decision))
    assert acted == [[], [], [], ["arena"]]


def test_an_exporter_that_goes_on_showing_a_pod_that_is_gone_is_not_believed() -> None:
    watch = Watch()
    decisions = [watch.sample((ARENA, 14_000), pods=()) for _ in range(8)]
    assert not any(map(recycled, decisions))
    (blind,) = decisions[-1].blind
    assert (blind.trouble, blind.gpu) == (Trouble.IMPLAUSIBLE, 0)
    assert "pod immich/arena (uid-ml) uses it, and does not run there, for over 30 s" in blind.problem


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        ({"node": "m"}, "is immich/arena on n there, and immich/arena on m to"),
        ({"name": "other"}, "pod uid-ml is immich/arena on n there, and immich/other on n"),
    ],
)
def test_a_pod_that_the_api_shows_elsewhere_makes_its_device_implausible(shown: dict[str, Any], problem: str) -> None:
    decision = second(Watch(), (ARENA, 14_000), pods=[replace(ARENA, **shown)])
    (blind,) = decision.blind
    assert (decision.verdicts, blind.trouble) == ((), Trouble.IMPLAUSIBLE)
    assert problem in blind.problem


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
    assert recycled(watch.sample((ARENA, 14_000))) == ["arena"]


@pytest.mark.parametrize("jump_seconds", [-3600, -6, 6, 3600])
def test_a_clock_that_jumps_ends_the_row(jump_seconds: float) -> None:
    watch = Watch()
    watch.sample((ARENA, 14_000))
    watch.skew_seconds = jump_seconds
    decision = watch.sample((ARENA, 14_000))
    assert (decision.verdicts, decision.problem) == ((), f"the clock jumped by {jump_seconds:+.0f} s")
    assert recycled(second(watch, (ARENA, 14_000))) == ["arena"]


@pytest.mark.parametrize(
    ("journal", "server_ahead_seconds", "problem"),
    [
        ((), 31, "the API server's clock and this node's are 31 s apart"),
        ((), -31, "the API server's clock and this node's are 31 s apart"),
        (recycles("others", 1, 170), 0, "the journal tells of a recycle in 60 s: the clock went back"),
    ],
)
def test_clocks_that_disagree_are_no_reason_to_act(
    journal: tuple[Recycled, ...], server_ahead_seconds: float, problem: str
) -> None:
    watch = Watch(recycled=journal, seconds=110)
    found = NodeTelemetry(pool=T4, node="n", devices=(card(100),), uses=())
    decision = watch.judge(found, (), server_ahead_seconds=server_ahead_seconds)
    assert (decision.verdicts, decision.problem) == ((), problem)


LOST = LostDevice(gpu=0, trouble=Trouble.MISSING, problem="its exporter cannot read it")


@pytest.mark.parametrize(
    ("others", "reading", "trouble"),
    [
        ([], {"unknown_uses": {"GPU-0": "NVML does not report 1 process"}}, Trouble.PARTIAL),
        ([], {"shown": (1,), "lost": (LOST,), "problem": str(LOST)}, Trouble.MISSING),
        ([(replace(LLAMA, node="m"), 14_000, 0)], {}, Trouble.IMPLAUSIBLE),
    ],
)
def test_a_device_that_cannot_be_judged_blinds_no_other(
    others: list[tuple[GpuPod, int, int]], reading: dict[str, Any], trouble: Trouble
) -> None:
    decision = two_cards(Watch(), *others, (ARENA, 14_000, 1), **reading)
    (blind,) = decision.blind
    assert (recycled(decision), blind.gpu, blind.trouble) == (["arena"], 0, trouble)


def test_an_error_of_one_pod_blinds_its_device_and_no_other() -> None:
    endless = replace(LLAMA, gone_by=datetime.max.replace(tzinfo=UTC))
    decision = two_cards(Watch(), (endless, 14_000, 0), (ARENA, 14_000, 1))
    (blind,) = decision.blind
    assert (recycled(decision), blind.gpu, blind.trouble) == (["arena"], 0, Trouble.UNJUDGED)
    assert blind.problem == "OverflowError: date value out of range"


PAIR = replace(LLAMA, name="pair", declared_mib=10_000, uuids=("GPU-0", "GPU-1"))


def test_a_pod_that_is_over_on_one_of_its_two_devices_is_recycled_for_that_device() -> None:
    decision = two_cards(Watch(), (PAIR, 9_000, 0), (PAIR, 900, 1), (ARENA, 5_000, 0))
    assert recycled(decision) == ["pair"]
    (found,) = (each for each in decision.verdicts if each.recycle)
    assert found.recycle[0].first.declared_each_mib == 5_000
    assert (found.device.gpu, found.recycle[0].overshoot_mib) == (0, 4_000)


def test_a_pod_within_its_budget_on_a_device_is_not_recycled_for_its_other_device() -> None:
    decision = two_cards(Watch(), (PAIR, 6_000, 0), (PAIR, 5_000, 1), (EMULATOR, 9_500, 1))
    assert recycled(decision) == []
    assert [each.missing_mib for each in decision.verdicts] == [0, 676]


@pytest.mark.parametrize("why", ["", "no-limit", "no-cgroup", "other-limit", "no-budget"])
def test_a_pod_that_the_driver_holds_is_spared_and_one_that_it_does_not_hold_is_recycled(why: str) -> None:
    """The driver does not count some memory, so even a fully capped pod can have an overshoot."""
    found = second(Watch(), (ARENA, 12_000), (LLAMA, 2_500), caps=caps("", why))
    assert recycled(found) == (["arena"] if why else [])
    assert [each.lasting for each in verdict(found).spared if "the driver holds it" in each.why] == [True] * (not why)
