"""Lets Pulumi make Python environments with a Python that has no ensurepip."""

import shutil
from importlib.util import find_spec
from pathlib import Path

from tests.support.scripts import script
from toolchain.cluster.paths import TOOLCHAIN


def environments_by_uv(folder: Path) -> dict[str, str]:
    """Returns the variables of Pulumi that replace `python -m venv` by uv, or no variables if Python has ensurepip.

    Debian has ensurepip in the package python3-venv. The variable PULUMI_PYTHON_CMD names the Python that Pulumi runs.
    """
    if find_spec("ensurepip"):
        return {}
    make = f'shift 2; exec "{TOOLCHAIN / "bin" / "uv"}" venv --quiet --seed --system-certs "$@"'
    run = f'exec "{shutil.which("python3")}" "$@"'
    return {"PULUMI_PYTHON_CMD": str(script(folder / "python3", f'if [ "$1 $2" = "-m venv" ]; then {make}; fi\n{run}'))}
