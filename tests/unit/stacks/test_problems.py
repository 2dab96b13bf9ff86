"""The operator's words: known keys are found in every nesting, and values are shown short."""

import pytest

from stacks import problems
from stacks.settings import StackSettings
from tests.support.prod import put, refusal


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ((), "residents"),
        (("cluster",), "resource_domain"),
        (("residents", "frigate"), "gpumem_mib"),
        (("queues",), "flavors"),
        (("queues", "flavors", "gpu-any"), "node_labels"),
        (("queues", "flavors", "gpu-any", "tolerations", 0), "effect"),
        (("queues", "cluster_queues", "gpu-cq", "quotas", "gpu-any", "nvidia.com/gpu"), "nominal"),
        (("queues", "cluster_queues", "gpu-cq", "preemption"), "within_cluster_queue"),
        (("on_demand", "tts", "window"), "between"),
        (("memory_pools", "node-4", "workloads", "inference"), "peak_mib"),
    ],
)
def test_known_keys_are_found_in_maps_lists_and_optional_parts(path: tuple[str | int, ...], expected: str) -> None:
    assert expected in problems.known_keys(StackSettings, path)


@pytest.mark.parametrize("path", [("residents",), ("pools", "t4", "node_selector"), ("queues", "local_queues")])
def test_a_map_of_free_names_has_no_known_keys(path: tuple[str, ...]) -> None:
    assert list(problems.known_keys(StackSettings, path)) == []


def test_the_closest_known_name_is_proposed() -> None:
    assert problems.nearest("gpumen_mib", ["tenant", "gpumem_mib"], "here") == "did you mean gpumem_mib?"


def test_names_that_do_not_fit_a_line_are_cut() -> None:
    assert problems.nearest("x", [f"pool-{n:02}" for n in range(40)], "there").endswith("pool-14, pool-15, …")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("localhost", " (got 'localhost')"),
        (True, " (got true)"),
        (None, " (got nothing)"),
        (30.5, " (got 30.5)"),
        ({"a": 1}, " (got a map)"),
        ([1], " (got a list)"),
    ],
)
def test_a_value_is_shown_as_the_operator_wrote_it(value: object, shown: str) -> None:
    assert problems.got(value) == shown


def test_a_long_value_is_cut() -> None:
    assert problems.got("x" * 1000) == f" (got '{'x' * 60}'…)"


def test_a_refused_value_never_breaks_the_line() -> None:
    assert len(refusal(put("cluster resource_domain", "a\nb"))) == 1


@pytest.mark.parametrize(
    ("written", "number"), [("3,000", "3000"), ("16,384 MiB", "16384"), ("3.000", None), ("5.5", None), ("3,00", None)]
)
def test_a_number_is_proposed_only_where_it_can_be_one(written: str, number: str | None) -> None:
    (line,) = refusal(put("residents frigate gpumem_mib", written))
    assert line.partition("; write ")[2].partition(" (got")[0] == (number or "")


def test_a_key_that_is_misspelt_is_not_missing_too() -> None:
    frigate = {"tenant": "frigate", "pool": "t4", "gpumem": 2000}
    assert refusal(put("residents frigate", frigate)) == [
        "gpu-tenancy:residents.frigate.gpumem: unknown key; did you mean gpumem_mib?"
    ]
    both = refusal(put("residents frigate", {**frigate, "gpumem_mib": -1}))
    assert [line.partition(" (")[0] for line in both] == [
        "gpu-tenancy:residents.frigate.gpumem_mib: must be at least 1",
        "gpu-tenancy:residents.frigate.gpumem: unknown key; did you mean gpumem_mib?",
    ]


def test_label_names_are_held_to_the_length_that_kubernetes_allows() -> None:
    selector = "pools t4 node_selector"
    assert refusal(put(f"{selector} {'a' * 63}", "x")) == []
    assert refusal(put(f"{selector} {'d' * 253}/{'a' * 63}", "x")) == []
    assert len(refusal(put(f"{selector} {'a' * 64}", "x"))) == 1
    assert len(refusal(put(f"{selector} {'d' * 254}/a", "x"))) == 1
    assert len(refusal(put(f"{selector} a/b/c", "x"))) == 1
    assert len(refusal(put(f"{selector} Example.com/a", "x"))) == 1
    assert len(refusal(put(f"{selector} a", "v" * 64))) == 1
    assert refusal(put(f"{selector} a", "")) == []
