"""Tests that files in the wheel import our packages as parts of gpu_tenancy."""

from pathlib import Path

import pytest

from tests.support.imports import packages
from tests.support.paths import ROOT
from toolchain import wheel

SOURCES = sorted(path for package in (wheel.NAME, *wheel.PACKAGES) for path in (ROOT / package).rglob("*.py"))
HERE = Path("here.py")


def test_what_the_packages_import_of_ours_is_in_the_wheel() -> None:
    others = {"tests", "toolchain"}
    here_alone = {ROOT / name for name in wheel.LEFT_OUT}
    assert {path for path in SOURCES if packages(path) & others} <= here_alone


def test_imports_within_functions_and_over_lines_are_moved_and_texts_are_not() -> None:
    source = (
        b'"""from tenancy import names"""\n'
        b"def f():\n    from agents.kube import (\n        client,\n    )\n    return 'tenancy.names'\n"
    )
    assert wheel.move_imports(source, HERE) == source.replace(b"    from agents", b"    from gpu_tenancy.agents")


def test_an_import_that_cannot_be_moved_says_how_to_write_it() -> None:
    with pytest.raises(wheel.WheelError, match=r"here.py:2: write `from … import …`"):
        wheel.move_imports(b"import json\nimport tenancy.names\n", HERE)


def test_without_the_chart_no_wheel_is_built(tmp_path: Path) -> None:
    with pytest.raises(wheel.WheelError, match=r"\.toolchain/charts/kueue is not there; run make toolchain"):
        wheel.fill_package(tmp_path / "gpu_tenancy", tmp_path)
