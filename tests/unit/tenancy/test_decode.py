"""Tests how JSON data becomes frozen dataclasses. All errors are reported at once."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st

from tenancy.decode import DecodeError, decode


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Leaf:
    count: int
    ratio: float = 0.5

    def __post_init__(self) -> None:
        if self.count == 13:
            raise ValueError("count must not be 13")


@dataclass(frozen=True)
class Tree:
    name: str
    leaf: Leaf
    more: tuple[Leaf, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    colour: Colour = Colour.RED
    flag: bool = False
    maybe: int | None = None


def refusal(data: object) -> list[str]:
    with pytest.raises(DecodeError) as refused:
        decode(Tree, data)
    assert str(refused.value) == "; ".join(refused.value.problems)
    return refused.value.problems


def test_a_number_that_lost_its_point_is_a_number() -> None:
    found = decode(Leaf, {"count": 1, "ratio": 2})
    assert (found.ratio, type(found.ratio)) == (2.0, float)


def test_every_problem_is_reported_at_once_with_its_path() -> None:
    assert refusal(
        {
            "name": 5,
            "leaf": {"count": True},
            "more": [{"count": 1}, {"count": 1.5}, {}],
            "labels": {"a": 1},
            "colour": "green",
            "flag": "yes",
            "maybe": "3",
            "bark": 1,
        }
    ) == [
        "tree.bark: unknown key; known here: colour, flag, labels, leaf, maybe, more, name",
        "tree.name: must be a string (got 5)",
        "tree.leaf.count: must be a whole number (got True)",
        "tree.more.1.count: must be a whole number (got 1.5)",
        "tree.more.2.count: is missing",
        "tree.labels.a: must be a string (got 1)",
        "tree.colour: must be one of red, blue (got 'green')",
        "tree.flag: must be true or false (got 'yes')",
        "tree.maybe: must be a whole number (got '3')",
    ]


def test_unknown_keys_are_left_out_where_they_may_be_and_told_with_their_paths() -> None:
    ignored: list[str] = []
    data = {"name": "oak", "bark": 1, "leaf": {"count": 1, "vein": 2}, "more": [{"count": 2}, {"count": 3, "vein": 4}]}
    assert decode(Tree, data, ignored=ignored) == Tree("oak", Leaf(1), (Leaf(2), Leaf(3)))
    assert ignored == ["tree.bark", "tree.leaf.vein", "tree.more.1.vein"]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ([], "tree: must be a map (got [])"),
        ({"name": "x", "leaf": 1}, "tree.leaf: must be a map (got 1)"),
        ({"name": "x", "leaf": {"count": 1}, "more": {}}, "tree.more: must be a list (got {})"),
        ({"name": "x", "leaf": {"count": 1}, "labels": []}, "tree.labels: must be a map (got [])"),
        ({"name": "x", "leaf": {"count": 1}, "colour": []}, "tree.colour: must be one of red, blue (got [])"),
        ({"name": "x", "leaf": {"count": 13}}, "tree.leaf: count must not be 13"),
        ({"name": "x", "leaf": {"count": float("nan")}}, "tree.leaf.count: must be a whole number (got nan)"),
    ],
)
def test_another_shape_is_refused(data: object, problem: str) -> None:
    assert refusal(data) == [problem]


def test_the_path_begins_where_the_caller_says() -> None:
    with pytest.raises(DecodeError, match=r"^gates\.0\.count: is missing$"):
        decode(Leaf, {}, "gates.0")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "leaf", "more", "labels", "colour", "count", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
