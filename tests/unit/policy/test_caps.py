"""Tests the rule `caps`."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from policy.rule import an_object
from stacks import settings
from tenancy.choices import Enforce
from tenancy.drawing.chart import seating_chart
from tenancy.ledger import Ledger
from tests.support.graphs import IMAGE, judge, platform, pool, put
from tests.support.paths import ROOT
from tests.support.prod import declared

ABLE: dict[str, Any] = {"enforce": Enforce.DRIVER}
CAPPED = pool("t4", **ABLE)


def with_labels(**labels: str) -> Ledger:
    (t4,) = (each for each in CAPPED.pools if each.name == "t4")
    named = {key.replace("_", "."): value for key, value in labels.items()}
    selector = {**t4.node_selector, **{f"nvidia.com/{key}": value for key, value in named.items()}}
    return replace(CAPPED, pools=tuple(replace(p, node_selector=selector) if p == t4 else p for p in CAPPED.pools))


REFUSED: dict[str, tuple[Ledger, str]] = {
    "no reserve": (
        pool("t4", **ABLE | {"reserve_mib": 0}),
        "caps: pools.t4: enforce: driver with reserve_mib 0: a seat of the whole device would be a limit that NVML "
        "cannot tell from none; reserve at least what the driver keeps of each device",
    ),
    "MIG": (
        with_labels(mig_config="all-1g.10gb"),
        "caps: pools.t4: enforce: driver on nodes that MIG divides, where the driver refuses limits; remove enforce, "
        "or MIG",
    ),
}


@pytest.mark.parametrize(("ledger", "message"), REFUSED.values(), ids=REFUSED)
def test_it_refuses(ledger: Ledger, message: str) -> None:
    assert message in judge(platform(ledger))


@pytest.mark.parametrize(("enforce", "reserve_mib"), [(Enforce.DRIVER, 1), (Enforce.NONE, 0)])
def test_a_device_is_given_whole_only_where_nothing_is_read_back(enforce: Enforce, reserve_mib: int) -> None:
    ledger = pool("t4", **ABLE | {"enforce": enforce, "reserve_mib": reserve_mib})
    assert not [each for each in judge(platform(ledger)) if each.startswith("caps")]


def test_the_example_with_caps_breaks_no_rule_and_its_preview_says_who_holds_the_seats() -> None:
    document = yaml.safe_load((ROOT / "examples" / "enforced.yaml").read_text())
    config = {key.removeprefix("gpu-tenancy:"): value for key, value in document["config"].items()}
    program = declared(config)
    assert judge(program) == []
    policies = {found["metadata"]["name"] for found in program.values() if "AdmissionPolicy" in found["kind"]}
    assert {"gpu-tenancy-device-cap-stamp", "gpu-tenancy-device-capped"} <= policies
    assert "; the driver lets no seat have more" in seating_chart(settings.parse(config).ledger(), width=200)


@pytest.mark.parametrize("enforce", list(Enforce))
def test_where_the_driver_enforces_no_workload_sets_its_own_cap(enforce: Enforce) -> None:
    program = platform(pool("t4", **ABLE | {"enforce": enforce}))
    put(
        program["llama-swap"],
        "spec.template.spec.containers.0.env",
        [{"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "9000"}],
    )
    told = [each for each in judge(program) if "the variables NVIDIA_GPU_MEMORY_LIMIT and" in each]
    assert len(told) == (1 if enforce is Enforce.DRIVER else 0)


def test_one_without_a_budget_sets_no_cap_either() -> None:
    program = platform(pool("t4", **ABLE))
    spec = {
        "containers": [{"name": "main", "image": IMAGE, "env": [{"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "1"}]}]
    }
    program["web"] = an_object("apps/v1", "Deployment", "web", "immich", spec={"template": {"spec": spec}})
    assert [each for each in judge(program) if "the variables NVIDIA_GPU_MEMORY_LIMIT and" in each]
