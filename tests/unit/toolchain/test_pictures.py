"""Tests that each picture of the docs is up to date with its source."""

from pathlib import Path

import pytest

from toolchain import pictures


@pytest.mark.parametrize("drawing", pictures.drawings(), ids=lambda path: path.name)
def test_a_picture_is_drawn_from_its_source_as_it_is(drawing: Path) -> None:
    assert drawing.with_suffix(".svg").read_text().endswith(pictures.mark(drawing)), "run `make pictures`"
