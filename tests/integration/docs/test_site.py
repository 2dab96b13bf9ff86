"""Builds the website of the docs. The build fails if a link or a picture leads nowhere."""

import os
import subprocess
from pathlib import Path

from tests.support.paths import ROOT

MKDOCS = ROOT / ".toolchain" / "docs" / "bin" / "python"


def test_the_site_is_built_without_a_broken_link(tmp_path: Path) -> None:
    command = [str(MKDOCS), "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "docs" / "start.html").exists()
