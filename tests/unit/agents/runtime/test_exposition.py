"""Tests that the parser accepts only text in the form that the agents write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.runtime.exposition import ExpositionError, Metric, Sample, parse, render

names = st.builds(str.__add__, st.sampled_from("az_"), st.text("az_09", max_size=8))
values = st.floats(allow_nan=False) | st.integers(0, 2**53)
samples = st.builds(
    Sample, name=names, labels=st.dictionaries(names, st.text(st.characters(exclude_categories=["Cs"]))), value=values
)


@given(st.lists(samples))
def test_what_is_rendered_is_parsed_again(written: list[Sample]) -> None:
    text = render(written, {sample.name: Metric(text="Help.") for sample in written})
    assert sorted(map(repr, parse(text))) == sorted(
        repr(Sample(name=s.name, labels=s.labels, value=float(s.value))) for s in written
    )


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a 1 2 3",
        "a one",
        "1a 2",
        'a{b="c} 1',
        "a{b=c} 1",
        'a{b="c" d="e"} 1',
        'a{b="\\x"} 1',
        "a  1",
        "<html>",
        "a{,} 1",
    ],
)
def test_a_line_of_another_form_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(ExpositionError, match="line 2 is not a sample"):
        parse(f"ok 1\n{line}\n")


def test_a_text_that_breaks_off_is_refused() -> None:
    with pytest.raises(ExpositionError, match="is truncated"):
        parse("a 1\nb 1")
