"""What a replay takes of a stack file, and what the program declares, are the same."""

from dataclasses import fields

import pytest

from simulation import stack as of_any
from stacks import settings
from tests.simulation.stack import CHANGES, stack
from tests.support import prod


@pytest.mark.parametrize("kind", CHANGES)
def test_a_stack_without_the_engine_is_the_one_that_the_program_declares(kind: str) -> None:
    config = prod.raw()
    for change in CHANGES[kind]:
        change(config)
    read, built = of_any.declared(settings.parse(config)), stack(kind)
    for field in fields(of_any.Stack):
        assert getattr(read, field.name) == getattr(built, field.name)
