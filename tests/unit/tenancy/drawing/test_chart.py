"""The seating chart has every number of a ledger, is to scale, and is not too wide."""

import re
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy.choices import PodSecurity, Sharing, Source
from tenancy.drawing.chart import seating_chart
from tenancy.drawing.text import apportion
from tenancy.ledger import Ledger, OnDemand, Pool, QueueQuota, Seat, Tenant, Unbudgeted, WorkerCluster
from tests.support.ledgers import ledgers

ANSI = re.compile(r"\x1b\[[0-9;]*m")
WIDTHS = st.sampled_from([40, 80, 100, 120])
T4 = Pool(
    name="t4",
    node_selector={"gpu": "t4"},
    nodes=1,
    device_count=1,
    memory_mib=1000,
    reserve_mib=100,
    driver_reserved_mib=50,
    floor_mib=200,
)
A100 = Pool(name="a100", node_selector={"gpu": "a100"}, nodes=4, device_count=4, memory_mib=40960, reserve_mib=960)


def seat(name: str, gpumem_mib: int, *, replicas: int = 1, pool: str = "t4") -> Seat:
    return Seat(name=name, tenant=name, pool=pool, gpumem_mib=gpumem_mib, replicas=replicas)


def ledger(pool: Pool, *seats: Seat) -> Ledger:
    return Ledger(domain="example.com", pools=(pool,), seats=seats)


def test_a_pool_says_what_must_show_its_devices_unless_it_is_labels() -> None:
    charts = {source: seating_chart(ledger(replace(T4, source=source)), width=120) for source in Source}
    heads = {source: chart.splitlines()[2] for source, chart in charts.items()}
    assert heads[Source.LABELS] == "t4: 0 of 900 MiB promised, 900 free (1 device of 1000 MiB, 100 reserved, floor 200)"
    assert heads[Source.SLICES].endswith("floor 200, shown by ResourceSlices)")
    assert heads[Source.DECLARED].endswith("floor 200, shown by labels or ResourceSlices)")


def test_a_pool_that_grows_on_demand_shows_what_is_there_and_what_may_come() -> None:
    batch = Pool(
        name="batch", node_selector={"gpu": "l4"}, nodes=8, least_nodes=1, device_count=2, sharing=Sharing.WHOLE
    )
    quota = QueueQuota(queue="gpu", flavor="l4", pool="batch", resource="nvidia.com/gpu", nominal=12)
    chart = seating_chart(replace(ledger(batch), quotas=(quota,)), width=120)
    assert "batch: 12 of 16 GPU promised, 4 free" in chart
    assert "2 GPU always there; the autoscaler makes 14 more on demand" in chart


def test_the_promises_of_worker_clusters_are_drawn_with_the_queues_that_use_them() -> None:
    clusters = tuple(WorkerCluster(name=name, promises={"nvidia.com/gpu": n}) for name, n in (("east", 8), ("west", 4)))
    quota = QueueQuota(
        queue="train", flavor="far", pool="", resource="nvidia.com/gpu", nominal=9, clusters=("east", "west")
    )
    chart = seating_chart(replace(ledger(T4), quotas=(quota,), clusters=clusters), width=100)
    head, drawn, reach = chart[chart.index("worker clusters") :].splitlines()[:3]
    assert head == "worker clusters: 9 of 12 nvidia.com/gpu promised, 3 free (east 8, west 4)"
    assert "train 9" in drawn
    assert reach.strip() == "train dispatches to east, west"
    over = replace(ledger(T4), quotas=(replace(quota, nominal=13),), clusters=clusters)
    assert "13 of 12 nvidia.com/gpu promised, OVER by 1 nvidia.com/gpu (east 8, west 4)" in seating_chart(
        over, width=100
    )


def test_the_devices_of_a_pod_are_drawn_on_one_node() -> None:
    pair = Seat(name="pair", tenant="x", pool="a100", gpumem_mib=30000, devices_per_pod=2)
    pool = replace(A100, nodes=2, device_count=3)
    chart = seating_chart(ledger(pool, pair, seat("rest", 20000, pool="a100")), width=120)
    assert "a100: 80000 of 240000 MiB promised" in chart
    assert bars(chart)[0].startswith("2 x ┃pair 30000")
    assert bars(chart)[1].startswith("1 x ┃rest 20000")
    assert "  devices of one node for each pod: pair 2" in chart.splitlines()


def test_pods_that_no_node_has_devices_for_are_named_under_the_bars() -> None:
    pair = Seat(name="pair", tenant="x", pool="a100", gpumem_mib=30000, replicas=3, devices_per_pod=2)
    chart = seating_chart(ledger(replace(A100, nodes=2, device_count=3), pair), width=120)
    assert bars(chart)[0].startswith("4 x ┃pair 30000")
    assert "  no room for pair 30000 on 2 devices" in chart.splitlines()
    assert "no seating: pair 30000 on 2 devices x 3: 3 pods with 30000 MiB or more on 2 or more devices" in chart


def bars(chart: str) -> list[str]:
    return [line for line in chart.splitlines() if "┃" in line]


@given(ledgers(), WIDTHS)
@settings(max_examples=60)
def test_no_line_is_longer_than_the_width(ledger: Ledger, width: int) -> None:
    for colour in (False, True):
        assert (
            max(len(ANSI.sub("", line)) for line in seating_chart(ledger, width=width, colour=colour).split("\n"))
            <= width
        )


@given(ledgers())
@settings(max_examples=60)
def test_every_bar_has_the_whole_width(ledger: Ledger) -> None:
    assert {len(bar) for bar in bars(seating_chart(ledger, width=90))} == {90}


@given(ledgers(), WIDTHS)
@settings(max_examples=60)
def test_every_seat_is_named_with_its_budget(ledger: Ledger, width: int) -> None:
    chart = " ".join(seating_chart(ledger, width=width).split())
    for one in ledger.seats:
        assert f"{one.name} {one.gpumem_mib}" in chart


@given(ledgers())
@settings(max_examples=60)
def test_colour_changes_nothing_but_colour(ledger: Ledger) -> None:
    plain = seating_chart(ledger)
    assert "\x1b" not in plain
    assert ANSI.sub("", seating_chart(ledger, colour=True)) == plain


@given(ledgers())
@settings(max_examples=60)
def test_an_overrun_is_said_and_nothing_else_is(ledger: Ledger) -> None:
    chart = seating_chart(ledger, width=200)
    for pool in ledger.pools:
        (head,) = (line for line in chart.splitlines() if line.startswith(f"{pool.name}: "))
        whole = pool.sharing is Sharing.WHOLE
        over = (
            ledger.quota_gpus(pool.name) - pool.gpus if whole else ledger.promised_mib(pool.name) - pool.advertised_mib
        )
        assert ("OVER by" in head) is (over > 0)
        assert over <= 0 or f"OVER by {over} {'GPU' if whole else 'MiB'}" in head


@given(st.lists(st.integers(1, 10**6), max_size=150), st.integers(30, 120))
def test_columns_are_shared_out_in_proportion_and_to_the_last(amounts: list[int], columns: int) -> None:
    widths = apportion(amounts, columns)
    assert sum(widths) == (columns if amounts else 0)
    if len(amounts) * 2 <= columns:
        assert min(widths, default=2) >= 2
        assert all(w <= amount * columns / sum(amounts) + 2 for w, amount in zip(widths, amounts, strict=True))


def test_a_pool_whose_numbers_are_assumed_is_named_as_such() -> None:
    text = "its numbers are assumed: the watchdog only reports there"
    charts = [seating_chart(ledger(replace(T4, assumed=each))) for each in (True, False)]
    assert [text in chart for chart in charts] == [True, False]


def test_the_chart_of_one_device() -> None:
    """Change the expected chart only if the change is meant."""
    one = replace(
        ledger(T4, seat("chat", 400), seat("a-rather-long-name", 100)),
        on_demand=(OnDemand(name="night", tenant="x", pool="t4", need_mib=50),),
        unbudgeted=(Unbudgeted(name="android", tenant="y", pool="t4", measured_mib=15),),
        queue_tenants=("team-a",),
    )
    assert seating_chart(one, width=80) == (
        "example.com/gpumem in MiB\n"
        "\n"
        "t4: 500 of 900 MiB promised, 400 free (1 device of 1000 MiB, 100 reserved,\n"
        "floor 200)\n"
        "┃chat 400                      │a-rathe…│·········· free 400 ··········│▒ 100 ▒┃\n"
        " a-rather-long-name 100\n"
        "  on demand: night 50\n"
        "  reserve 100: driver 50, unbudgeted android 15; 35 left\n"
        "  every seat full: 435 free, 235 above the floor of 200\n"
        "\n"
        "queue tenants: team-a\n"
        "· free   ▒ reserve\n"
    )


def test_who_is_held_to_less_is_named_with_the_reason() -> None:
    owner = Tenant(name="vm", pod_security=PodSecurity.PRIVILEGED, pod_security_reason="needs /dev/kvm")
    held = Tenant(name="chat", pod_security=PodSecurity.RESTRICTED)
    spared = replace(ledger(T4), exempt_namespaces=("kube-system", "nvidia"), trusted_namespaces=("monitoring",))
    spared = replace(spared, trusted_groups=("sre",))
    chart = seating_chart(replace(spared, tenants=(owner, held)))
    assert "privileged: vm: needs /dev/kvm\nexempt from admission: kube-system, nvidia\n" in chart
    assert "trusted with any right: monitoring, group sre\n" in chart
    assert "chat" not in chart


def test_who_finds_no_room_is_named() -> None:
    chart = seating_chart(ledger(T4, seat("chat", 700), seat("search", 300)))
    assert "t4: 1000 of 900 MiB promised, OVER by 100 MiB" in chart
    assert "no room for search 300" in chart


def test_a_sum_that_fits_and_a_seating_that_does_not_exist_is_reported() -> None:
    pool = replace(T4, device_count=2)
    chart = seating_chart(ledger(pool, seat("big", 600, replicas=3)))
    assert "t4: 1800 of 1800 MiB promised, 0 free" in chart
    assert "no room for big 600" in chart
    assert "no seating: big 600 x 3: 3 of 600 MiB or more need 3 devices" in chart


def test_who_needs_no_budget_is_shown_with_its_gpus_where_it_is_not_the_one() -> None:
    chart = seating_chart(
        replace(
            ledger(T4),
            on_demand=(OnDemand(name="night", tenant="x", pool="t4", need_mib=50, gpus=2),),
            unbudgeted=(Unbudgeted(name="android", tenant="y", pool="t4", measured_mib=15, gpus=3),),
        )
    )
    assert "  on demand: night 50 on 2 GPUs\n" in chart
    assert "unbudgeted android 15 on 3 GPUs; 35 left" in chart


def with_unbudgeted(mib: int, *seats: Seat, **changes: Any) -> str:
    android = Unbudgeted(name="android", tenant="y", pool="t4", measured_mib=mib)
    return seating_chart(replace(ledger(replace(T4, **changes), *seats), unbudgeted=(android,)), colour=True)


def test_nothing_is_called_within_the_reserve_that_is_more_than_it() -> None:
    chart = with_unbudgeted(51, seat("chat", 400))
    assert "\x1b[1;31m  reserve 100: driver 50, unbudgeted android 51; 1 short" in chart


def test_full_seats_that_reach_under_the_floor_are_a_line_and_no_alarm() -> None:
    chart = with_unbudgeted(15, seat("chat", 790))
    assert "\n  every seat full: 145 free, 55 under the floor of 200\n" in chart
    assert "\x1b[1;31m" not in chart


def test_promises_and_a_floor_that_are_more_than_the_device_are_an_alarm() -> None:
    chart = with_unbudgeted(15, seat("chat", 801))
    assert "\x1b[1;31m  every seat full: 134 free, 66 under the floor of 200" in chart


def test_of_several_devices_the_fullest_is_reported() -> None:
    chart = with_unbudgeted(15, seat("chat", 400, replicas=3), device_count=2)
    assert "  every seat full, on the fullest device: 135 free, 65 under the floor of 200\n" in chart


def test_more_than_the_device_has_is_reported() -> None:
    chart = with_unbudgeted(150, seat("chat", 890), floor_mib=0)
    assert "  every seat full: 90 more than the device has\n" in chart


def test_devices_that_hold_the_same_are_one_bar() -> None:
    few = replace(A100, nodes=2)
    chart = seating_chart(ledger(few, seat("chat", 30000, replicas=3, pool="a100"), seat("tiny", 1, pool="a100")))
    assert [bar.partition("┃")[0] for bar in bars(chart)] == ["1 x ", "2 x ", "5 x "]
    assert "  a possible seating:" in chart.splitlines()


def test_only_a_pool_with_several_devices_and_seats_has_a_possible_seating() -> None:
    assert "possible" not in seating_chart(ledger(T4, seat("chat", 400)))
    assert "possible" not in seating_chart(ledger(A100))


def test_whole_devices_are_handed_out_by_queues() -> None:
    pool = Pool(name="batch", node_selector={"a": "b"}, nodes=1, device_count=2, sharing=Sharing.WHOLE)
    quota = QueueQuota(queue="gpu-cq", flavor="any", pool="batch", resource="nvidia.com/gpu", nominal=1)
    chart = seating_chart(Ledger(domain="example.com", pools=(pool,), quotas=(quota,)))
    assert "batch: 1 of 2 GPU promised, 1 free (2 devices, whole)" in chart
    assert "┃gpu-cq 1 " in chart
    assert "queues: gpu-cq 1 nvidia.com/gpu" in chart


def test_what_queues_may_hand_out_takes_its_room_in_the_bar() -> None:
    quota = QueueQuota(queue="gpu-cq", flavor="any", pool="t4", resource="example.com/gpumem", nominal=500)
    chart = seating_chart(replace(ledger(T4, seat("chat", 400)), quotas=(quota,)))
    assert "t4: 900 of 900 MiB promised, 0 free" in chart
    assert "│queues 500 " in chart
    assert "equal parts" not in chart


def test_a_quota_of_several_devices_is_drawn_in_equal_parts_and_the_chart_has_a_sentence_about_it() -> None:
    quota = QueueQuota(queue="gpu-cq", flavor="any", pool="t4", resource="example.com/gpumem", nominal=500)
    chart = seating_chart(replace(ledger(replace(T4, device_count=2)), quotas=(quota,)))
    assert "2 x ┃queues 250 " in chart
    assert "drawn in equal parts; Kueue counts the sum, and each pod goes where it has room" in chart


def test_a_tenant_keeps_its_colour_when_others_come_and_go() -> None:
    def colour(chart: str) -> str:
        found = re.search(r"(\x1b\[[0-9;]*m)chat", chart)
        assert found
        return found[1]

    alone = seating_chart(ledger(T4, seat("chat", 400)), colour=True)
    among = seating_chart(ledger(T4, seat("chat", 400), seat("aaa", 100), seat("zzz", 100)), colour=True)
    assert colour(alone) == colour(among)


def test_more_seats_than_columns_still_fit_and_are_named() -> None:
    chart = seating_chart(ledger(T4, seat("chat", 30), *(seat(f"s{n}", 4) for n in range(200))), width=80)
    assert [len(bar) for bar in bars(chart)] == [80]
    assert all(f"s{n} 4" in chart for n in range(200))


def test_equal_seats_on_a_device_are_one_part_of_its_bar() -> None:
    chart = seating_chart(ledger(T4, seat("chat", 4, replicas=100)), width=80)
    assert "┃chat 4 x 100 " in chart
