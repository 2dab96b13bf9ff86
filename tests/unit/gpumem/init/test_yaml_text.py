"""Tests that init's YAML keeps all data unchanged, even text that a tenant chose."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpumem.init.yaml_text import Entry, Item, Map, comment_line, map_of, quoted, rendered
from stacks import stackfile
from tests.support.yaml_trees import plain

TEXT = st.text(max_size=12)
SCALARS = st.one_of(TEXT, st.integers(), st.booleans())
HOSTILE = [
    "",
    "true",
    "No",
    "null",
    "~",
    "1e3",
    "0o17",
    "2026-11-22",
    "a: b",
    "a #b",
    "- a",
    "{a}",
    "*a",
    "&a",
    "!!python/object:os.system",
    "a\nconfig: {}",
    "a\u2028b",
    "a\x85b",
    '"',
    "'",
    "\\",
    "\x00",
    "%YAML",
    "a:",
    "y",
    "\U0001f600",
]


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


@pytest.mark.parametrize("text", HOSTILE)
def test_text_that_yaml_reads_otherwise_is_quoted(text: str) -> None:
    tree = map_of(Entry("config", map_of(Entry(text or "k", text, text, (text,)))))
    assert yaml.safe_load(rendered(tree, [text])) == {"config": {text or "k": text}}


@pytest.mark.parametrize("text", HOSTILE)
def test_the_stack_files_reader_reads_the_same(text: str, tmp_path: Any) -> None:
    path = tmp_path / "Pulumi.x.yaml"
    entry = Entry("gpu-tenancy:tenants", map_of(Entry("a", map_of(Entry("mode", text, text)))))
    path.write_text(rendered(map_of(Entry("config", map_of(entry)))))
    assert stackfile.read(path).values == {"tenants": {"a": {"mode": text}}}


def test_plain_words_have_no_quotes() -> None:
    assert [quoted(each) for each in ("t4", "nvidia.com/gpu.present", "a/b:1.2")] == [
        "t4",
        "nvidia.com/gpu.present",
        "a/b:1.2",
    ]
