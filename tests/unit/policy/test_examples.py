"""Tests that the example of a rule breaks only this rule."""

import pytest

from policy.rules import RULES
from tests.golden import gate
from tests.support import graphs
from tests.support.examples import CASES, Case, judged


def test_every_rule_has_an_example() -> None:
    assert [rule.id for rule in RULES if not rule.examples] == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_example_breaks_its_rule_and_no_other_and_what_it_says_to_write_passes(case: Case) -> None:
    assert graphs.rules_of(case.said()) == {case.rule}
    assert case.said_of_the_right_one() == []


def test_the_page_is_what_the_rules_say() -> None:
    assert gate.PAGE.read_text() == gate.page(), "run make golden, and review the diff"


# Of a model server, an unknown flag is no finding.
UNKNOWNS = [c for c in CASES if c.example.of and c.example.key and c.rule != "server-flags"]


@pytest.mark.parametrize("case", UNKNOWNS, ids=str)
def test_a_value_that_is_unknown_until_the_update_is_refused(case: Case) -> None:
    said = judged(case.example, graphs.UNKNOWN)
    assert any("cannot be proven" in line and "is unknown until the update" in line for line in said), said
