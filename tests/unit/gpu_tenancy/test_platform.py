"""Tests the component Platform, with which a user's program declares the whole platform."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi
import pytest

from gpu_tenancy import Platform
from gpu_tenancy.arguments import ArgumentError
from tenancy.ledger import Ledger
from tests.support.engine import Graph, build
from tests.support.paths import ROOT
from tests.support.prod import PROD, raw

MUTABLE = "kubernetes:enableConfigMapMutable"


@pytest.fixture(autouse=True)
def _config_maps_change_in_place() -> Iterator[None]:
    pulumi.runtime.set_all_config({MUTABLE: "true"})
    yield
    pulumi.runtime.set_all_config({})


def graph_of(**given: Any) -> Graph:
    return build(lambda: Platform("gpu", **given).export())


def refused(**given: Any) -> list[str]:
    with pytest.raises(ArgumentError) as error:
        graph_of(**given)
    first, *lines = str(error.value).splitlines()
    assert first == "Platform gpu is refused:"
    return [line.removeprefix("  ") for line in lines]


@pytest.fixture(scope="module")
def prod() -> Iterator[Graph]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        pulumi.runtime.set_all_config({MUTABLE: "true"})
        yield graph_of(settings=raw())


def test_it_declares_everything_below_itself_and_its_outputs_are_the_stacks(prod: Graph) -> None:
    platform = prod.one("Platform")
    assert [resource for resource in prod.resources if not resource.parent_urn or resource == platform] == [platform]
    assert prod.exports.keys() == {"ledger", "residents", "memory", "seating_chart"}
    assert prod.outputs_of(platform).keys() == {"ledger", "residents", "memory", "seatingChart"}
    ledger = Ledger.from_data(prod.exports["ledger"]["gpu-tenancy"]["ledger"])
    assert {seat.name for seat in ledger.seats} == prod.exports["residents"].keys()


@pytest.mark.parametrize("under_config", [True, False])
def test_a_file_holds_the_settings_with_or_without_config(tmp_path: Path, under_config: bool) -> None:
    text = (ROOT / "examples" / "template" / "gpus.yaml").read_text()
    assert text.count("\nconfig:\n") == 1
    path = tmp_path / "stack.yaml"
    path.write_text(text if under_config else text.replace("\nconfig:\n", "\n"))
    residents = graph_of(file=str(path)).exports["residents"]
    assert residents
    assert all("resources" in stanza for stanza in residents.values())


def test_a_value_that_only_an_update_knows_is_refused_by_its_path() -> None:
    def program() -> None:
        wrong = {"nodes": pulumi.Output.from_input(3), "memory_mib": Path("x")}
        Platform("gpu", settings={**raw(), "pools": {"t4": wrong}})

    with pytest.raises(ArgumentError) as error:
        build(program)
    assert str(error.value).splitlines()[1:] == [
        "  pools.t4.nodes: is an Output; write a value that is known before the program runs",
        "  pools.t4.memory_mib: must be a map, list, text, number or true or false (got PosixPath)",
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "settings: is missing; give settings or file"),
        ({"settings": {}, "file": "x"}, "settings, file: are both given; remove one"),
        ({"file": 3}, "file: must be a string, known before the program runs (got 3)"),
        ({"settings": []}, "settings: must be a mapping, known before the program runs (got [])"),
        ({"file": "x", "setings": {}}, "setings: is no argument; did you mean settings?"),
        ({"file": "nowhere.yaml"}, "nowhere.yaml: cannot be read: No such file or directory"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], said: str) -> None:
    assert refused(**given) == [said]


def test_without_config_maps_that_change_in_place_it_is_refused_before_a_node_can_lose_its_capacity() -> None:
    pulumi.runtime.set_all_config({})
    (line,) = refused(file=str(PROD))
    assert line.startswith("kubernetes:enableConfigMapMutable: must be true under config in Pulumi.yaml")


def test_a_provider_of_ones_own_says_itself_how_config_maps_change() -> None:
    pulumi.runtime.set_all_config({})

    def program() -> None:
        provider = pulumi.ProviderResource("kubernetes", "mine", {"enableConfigMapMutable": "true"})
        file = str(ROOT / "examples" / "template" / "gpus.yaml")
        Platform("gpu", {"file": file}, pulumi.ResourceOptions(provider=provider))

    graph = build(program)
    assert "mine" in graph.one("ConfigMap", "gpu-capacity-ledger").request.provider
