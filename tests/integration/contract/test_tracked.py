"""Searches the repository for paths of a developer's machine, and for notes about unfinished work."""

import subprocess

from tests.support.paths import ROOT

GENERATED = ("go.sum", "go.mod", ".lock", ".svg", ".png")
TRACKED = subprocess.run(
    ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
).stdout.split("\0")


def test_no_file_contains_paths_of_a_developers_machine() -> None:
    words = ["/".join(("", "work", "")), "/".join(("", "root", "")), "TO" + "DO", "FIX" + "ME"]
    texts = {name: ROOT / name for name in TRACKED if (ROOT / name).is_file() and not name.endswith(GENERATED)}
    found = [(name, word) for name, path in texts.items() for word in words if word in path.read_text(errors="ignore")]
    assert found == []
