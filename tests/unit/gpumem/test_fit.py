"""Tests the command fit. The policy pack accepts every change that fit prints."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpumem import checkout, cluster
from gpumem.cli import main
from gpumem.draw_fit import fit_text
from gpumem.fit import Fit, fit
from gpumem.paper import Paper
from gpumem.stack_fit import StackFile
from gpumem.who import UnknownNameError
from policy.graph import Graph
from policy.rules import violations
from stacks import settings
from tenancy.fit.smallest_change import Wanted
from tenancy.ledger import Seat
from tests.support.kubectl import (
    LEDGER_OF_PROD,
    PODS,
    SYSTEM,
    FakeApi,
    add_exporter,
    api,
    device_slice,
    node,
    page,
    pod,
)
from tests.support.paths import ROOT

SEATS = [pod("ml", 3000, on="k8s-node1"), pod("swap", 5000, "llama-swap", on="k8s-node1")]


def of(found: FakeApi, mib: int, **asked: int) -> Fit:
    read = cluster.read(found, SYSTEM, lambda: "immich")
    return fit(read.ledger, read, Wanted(mib=mib, **asked), "t4")


def text(found: Fit) -> str:
    return fit_text(found, Paper(width=120))


def kinds(found: Fit) -> list[tuple[str, str, int | None]]:
    (pool,) = found.pools
    assert pool.devices is not None
    assert pool.devices.changes is not None
    return [(change.kind, change.workload, change.to_mib) for change in pool.devices.changes]


def test_what_the_ledger_and_a_device_have_room_for_fits_now_and_where() -> None:
    found = of(api(SEATS), 4000)
    assert found.fits
    (pool,) = found.pools
    assert pool.devices is not None
    assert pool.devices.places == (("k8s-node1, gpu 0",),)
    assert "t4: 4000 MiB fit now" in text(found)


@pytest.mark.parametrize(
    "closed",
    [node("k8s-node1", spec={"unschedulable": True}), node("k8s-node1", ready="False")],
    ids=["cordoned", "lost"],
)
def test_a_node_that_takes_no_pod_is_no_place(closed: dict[str, Any]) -> None:
    (pool,) = of(api(SEATS, nodes=[closed]), 4000).pools
    assert pool.devices is not None
    assert (pool.devices.fits, pool.devices.changes) == (False, None)


def test_a_budget_is_lowered_and_never_below_what_is_used() -> None:
    less, more = api(SEATS), api(SEATS)
    add_exporter(less, "k8s-node1", page("k8s-node1", 7000, {"immich/ml": 2900, "llama-swap/swap": 1000}))
    add_exporter(more, "k8s-node1", page("k8s-node1", 7000, {"immich/ml": 2900, "llama-swap/swap": 4900}))
    found = of(less, 8000)
    assert kinds(found) == [("lower", "llama-swap", 3000)]
    assert "lower llama-swap by 2000 MiB, from 5000 to 3000 (it uses 1000 now)" in text(found)
    assert "as they are held now: no change makes room" in text(of(more, 8000))


def test_without_a_measurement_a_lower_budget_is_called_a_guess() -> None:
    assert "a guess: what it needs is not known" in text(of(api(SEATS), 8000))


@pytest.mark.parametrize(
    ("touched", "mib", "shown"),
    [
        (0, 0, "not proven minimal: perhaps all fit as they are"),
        (1, 0, "not proven minimal: at least 1 workload must be touched:"),
        (2, 300, "not proven minimal: at least 2 workloads must be touched, and 300 MiB less promised if no more are:"),
    ],
)
def test_of_a_search_that_ended_early_it_says_what_cannot_be_less(touched: int, mib: int, shown: str) -> None:
    found = of(api(SEATS), 8000)
    (pool,) = found.pools
    assert pool.devices is not None
    devices = replace(pool.devices, proven=False, least_touched=touched, least_mib=mib)
    told = " ".join(text(replace(found, pools=(replace(pool, devices=devices),))).split())
    assert shown in told


def test_a_pod_is_moved_where_that_makes_room() -> None:
    nodes = [node("k8s-node1"), node("k8s-node2")]
    slices = [device_slice("k8s-node1", 15360), device_slice("k8s-node2", 15360)]
    pods = [SEATS[0], pod("swap", 5000, "llama-swap", on="k8s-node2")]
    found = of(api(pods, nodes, slices=slices), 14000)
    assert [kind for kind, *_ in kinds(found)] == ["move"]
    assert "move immich/ml from k8s-node1, gpu 0 to k8s-node2, gpu 0 (one restart)" in text(found)


def test_an_on_demand_workload_in_what_is_to_be_used_is_parked() -> None:
    shown = api([*SEATS, pod("tts-1", 0, "tts", on="k8s-node1")])
    add_exporter(
        shown, "k8s-node1", page("k8s-node1", 3000, {"immich/ml": 2900, "llama-swap/swap": 4900, "tts/tts-1": 4000})
    )
    shown.objects["/apis/apps/v1/namespaces/tts/deployments/tts"] = {"spec": {"replicas": 1}}
    assert kinds(of(shown, 4000)) == [("park", "tts", None)]
    assert kinds(of(shown, 1000)) == []


def test_who_may_not_read_the_pods_of_others_gets_the_promises() -> None:
    shown = api(SEATS)
    shown.refused.add(PODS)
    found = of(shown, 4000)
    (pool,) = found.pools
    assert pool.devices is None
    assert pool.promises is not None
    assert any("only promises" in line for line in found.unknown)


def test_with_a_seat_of_the_tenant_nothing_new_is_promised() -> None:
    read = cluster.read(api(SEATS[1:]), SYSTEM, lambda: "immich")
    found = fit(read.ledger, read, Wanted(mib=3000), "t4", "immich")
    assert found.pools[0].seat == "immich-ml"
    assert found.pools[0].promises is None
    assert found.fits


def test_a_seat_that_a_pod_takes_needs_a_new_promise() -> None:
    read = cluster.read(api(SEATS), SYSTEM, lambda: "immich")
    found = fit(read.ledger, read, Wanted(mib=3000), "t4", "immich")
    (pool,) = found.pools
    assert (pool.seat, pool.taken) == (None, "seat immich-ml is taken by immich/ml")
    assert pool.promises is not None
    assert not found.fits
    assert "seat immich-ml is taken by immich/ml: the pods need a new promise" in text(found)


TWINS = replace(
    LEDGER_OF_PROD,
    seats=tuple(Seat(name=name, tenant="immich", pool="t4", gpumem_mib=3000) for name in ("ocr", "faces")),
)


@pytest.mark.parametrize(
    ("pods", "seat"),
    [
        ([], "ocr"),
        ([pod("ml", 3000, on="k8s-node1")], "faces"),
        ([pod("ml", 3000, on="k8s-node1", seat="ocr")], "faces"),
        ([pod("ml", 3000, on="k8s-node1", seat="faces")], "ocr"),
        ([pod("a", 3000, on="k8s-node1"), pod("b", 3000, on="k8s-node1", seat="ocr")], None),
    ],
)
def test_of_two_seats_of_one_size_the_free_one_is_named(pods: list[dict[str, Any]], seat: str | None) -> None:
    read = cluster.read(api(pods), SYSTEM, lambda: "immich")
    (pool,) = fit(TWINS, read, Wanted(mib=3000), "t4", "immich").pools
    assert pool.seat == seat
    assert bool(pool.taken) == (seat is None)


def test_a_seat_that_the_quota_cannot_pay_needs_a_new_promise() -> None:
    other = pod("other", 4000, on="k8s-node1")
    read = cluster.read(api([other]), SYSTEM, lambda: "immich")
    (pool,) = fit(read.ledger, read, Wanted(mib=3000), "t4", "immich").pools
    assert pool.taken == "the quota of immich has 800 of 4800 MiB left"


def test_a_stack_file_does_not_show_which_seats_are_taken() -> None:
    found = fit(LEDGER_OF_PROD, None, Wanted(mib=3000), "t4", "immich")
    assert any("the pods that take the seats of immich" in line for line in found.unknown)


def test_where_no_sensible_change_is_known_the_missing_devices_are_counted() -> None:
    found = fit(LEDGER_OF_PROD, None, Wanted(mib=13000, replicas=2), "t4")
    (pool,) = found.pools
    assert pool.promises is not None
    assert (pool.promises.changes, pool.promises.proven, pool.missing) == (None, True, 2)
    assert "to promise it: no change makes room" in text(found)
    assert "2 devices are missing: raise pools.t4.nodes to 3" in text(found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "4000", "--live"], "--live needs --stack"),
        (["fit"], "say how many MIB a new pod needs, or name a node with --without"),
        (["fit", "4000", "--without", "k8s-node1"], "--without judges the pods of a node"),
        (["fit", "--without", "k8s-node1", "--stack", "prod"], "--without judges the pods of a node"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments, {})
    assert refused.value.code == 2
    assert message in capsys.readouterr().err


@pytest.fixture(scope="module")
def prod() -> StackFile:
    return StackFile("prod", ROOT)


@pytest.mark.parametrize(
    ("mib", "replicas", "tenant"), [(4000, 1, None), (500, 1, "immich"), (4000, 1, "tts"), (13000, 2, "portal-stt")]
)
def test_what_is_to_be_written_passes_settings_and_gate(
    prod: StackFile, mib: int, replicas: int, tenant: str | None
) -> None:
    found = prod.with_patch(fit(prod.ledger, None, Wanted(mib=mib, replicas=replicas), "t4", tenant))
    assert found.patch is not None, found.refusals
    document = yaml.safe_load((ROOT / "Pulumi.prod.yaml").read_text())["config"]
    for part, entries in yaml.safe_load(found.patch).items():
        for name, entry in entries.items():
            document[part][name] = {**document[part].get(name, {}), **entry}
    changed = settings.parse({key.removeprefix("gpu-tenancy:"): value for key, value in document.items()}).ledger()
    assert [*violations(Graph((), {"ledger": changed.to_data()}))] == []
    new = next(seat for seat in changed.seats if seat.name not in {seat.name for seat in prod.ledger.seats})
    assert (new.gpumem_mib, new.replicas, new.tenant) == (mib, replicas, tenant or "new-tenant")


@pytest.fixture
def pair(tmp_path: Path) -> StackFile:
    document = yaml.safe_load((ROOT / "Pulumi.prod.yaml").read_text())
    spare = {"pool": "spare", "nvidia.com/gpu.sharing-strategy": "none"}
    sizes = {"device_count": 3, "memory_mib": 24576, "reserve_mib": 1536, "floor_mib": 1024}
    pools = document["config"]["gpu-tenancy:pools"]
    for name, pool in pools.items():
        pool["node_selector"]["pool"] = name
    pools["spare"] = {"node_selector": spare, "nodes": 2, **sizes}
    (tmp_path / "Pulumi.prod.yaml").write_text(yaml.safe_dump(document))
    return StackFile("prod", tmp_path)


def test_three_pods_of_two_devices_do_not_fit_two_nodes_of_three(pair: StackFile) -> None:
    """Before the fix, fit replaced three pods with two devices each by six replicas with one device each."""
    found = pair.with_patch(fit(pair.ledger, None, Wanted(mib=20000, count=2, replicas=3), "spare", None))
    assert not found.fits
    assert found.patch is not None, found.refusals
    assert yaml.safe_load(found.patch)["gpu-tenancy:pools"] == {"spare": {"nodes": 3}}
    seated = Seat(name="big", tenant="new", pool="spare", gpumem_mib=20000, replicas=2, devices_per_pod=2)
    ledger = replace(pair.ledger, seats=(*pair.ledger.seats, seated))
    assert not fit(ledger, None, Wanted(mib=20000, count=2), "spare", None).fits
    assert fit(ledger, None, Wanted(mib=20000, replicas=2), "spare", None).fits
    assert [pool.seat for pool in fit(ledger, None, Wanted(mib=20000, count=2), "spare", "new").pools] == ["big"]


@pytest.mark.parametrize("keys_are_below_config", [True, False])
def test_a_file_of_any_name_is_a_stack_file(tmp_path: Path, keys_are_below_config: bool) -> None:
    config = yaml.safe_load((ROOT / "Pulumi.prod.yaml").read_text())
    file = tmp_path / "gpus.yaml"
    file.write_text(yaml.safe_dump(config if keys_are_below_config else config["config"]))
    stack = StackFile("gpus.yaml", tmp_path)
    found = stack.with_patch(fit(stack.ledger, None, Wanted(mib=2500), "t4", "immich"))
    assert "into gpus.yaml (settings and" in text(found)
    read = checkout.read(str(file), Path("/"))
    changed = checkout.with_numbers(read, {("residents", "frigate", "gpumem_mib"): 1999})
    assert "+++ b/gpus.yaml" in checkout.patch(read, changed)


def test_no_patch_is_shown_that_the_gate_would_refuse(tmp_path: Path) -> None:
    config = yaml.safe_load((ROOT / "Pulumi.prod.yaml").read_text())
    del config["config"]["gpu-tenancy:scheduler"]
    (tmp_path / "gpus.yaml").write_text(yaml.safe_dump(config))
    stack = StackFile("gpus.yaml", tmp_path)
    found = stack.with_patch(fit(stack.ledger, None, Wanted(mib=500), "node-4", "immich"))
    assert found.patch is None
    (refusal,) = found.refusals
    assert refusal.startswith("gpu-tenancy:scheduler: is missing though immich is in several pools")
    assert "no change to gpus.yaml is shown, because it would be refused" in text(found)


def test_a_pool_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UnknownNameError, match="--pool 'batch' is no pool that shares memory; these are: t4"):
        fit(LEDGER_OF_PROD, None, Wanted(mib=1), "batch")
