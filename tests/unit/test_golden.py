"""Tests that the objects of the golden stacks equal the files in tests/golden."""

from pathlib import Path

import pytest

from tests.golden import render


@pytest.mark.parametrize(("stack_file", "golden"), render.STACKS.items(), ids=lambda path: path.name)
def test_a_stack_declares_the_objects_of_its_golden_file(stack_file: Path, golden: Path) -> None:
    assert render.objects(stack_file) == golden.read_text(), "review the difference, then run `make golden`"
