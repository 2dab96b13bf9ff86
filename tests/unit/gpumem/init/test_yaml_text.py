"""Tests that init's YAML keeps all data unchanged, even text that a tenant chose."""

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpumem.init.yaml_text import Entry, Item, Map, comment_line, quoted, rendered
from tests.support.yaml_trees import plain

TEXT = st.text(max_size=12)
SCALARS = st.one_of(TEXT, st.integers(), st.booleans())


def maps(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Map]:
    keys = st.text(min_size=1, max_size=8)
    entries = st.builds(Entry, keys, values, TEXT, st.tuples(TEXT) | st.just(()))
    return st.lists(entries, max_size=3, unique_by=lambda entry: entry.key).map(lambda found: Map(tuple(found)))


ITEMS = st.lists(st.builds(Item, SCALARS | maps(SCALARS), TEXT), max_size=3).map(tuple)
TREES = st.recursive(SCALARS | ITEMS, maps, max_leaves=5).filter(lambda value: isinstance(value, Map))


@given(TREES)
def test_any_tree_is_read_back_with_its_comments_left_out(tree: Map) -> None:
    assert (yaml.safe_load(rendered(tree)) or {}) == plain(tree)


@given(st.text())
def test_any_text_is_one_scalar(text: str) -> None:
    assert yaml.safe_load(quoted(text)) == text


@given(st.text())
def test_any_text_is_one_comment(text: str) -> None:
    line = comment_line(text)
    assert len(line.splitlines()) == 1
    assert yaml.safe_load(f"a: 1 {line}\nb: 2\n") == {"a": 1, "b": 2}


def test_plain_words_have_no_quotes() -> None:
    assert [quoted(each) for each in ("t4", "nvidia.com/gpu.present", "a/b:1.2")] == [
        "t4",
        "nvidia.com/gpu.present",
        "a/b:1.2",
    ]
