"""Tests that the import of a module has no side effects."""

import subprocess
import sys

from tests.support.imports import PACKAGES, modules
from tests.support.paths import ROOT


def test_importing_a_module_does_nothing() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for package in PACKAGES
        for path in modules(package)
        if path.name != "__main__.py"
    ]
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    run = subprocess.run(
        [sys.executable, "-c", code, *names], cwd=ROOT, env={"PATH": ""}, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
