"""docs/gate.md is what the rules say today."""

import pytest

from policy.rules import RULES
from tests.support import graphs
from tests.unit.policy.page import EXAMPLES, PAGE, Example, page


def test_the_page_is_what_the_rules_say() -> None:
    assert PAGE.read_text() == page(), "run python -m tests.unit.policy.page > docs/gate.md"


def test_every_rule_has_an_example() -> None:
    assert {example.rule for example in EXAMPLES} == {rule.id for rule in RULES}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.rule} {example.where}")
def test_what_the_page_says_to_write_passes(example: Example) -> None:
    assert graphs.rules_of(example.said()) == {example.rule}
    assert example.said_of_the_right_one() == []
