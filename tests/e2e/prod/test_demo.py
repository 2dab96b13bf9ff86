"""Tests that `make demo` runs all its steps, and leaves no files or processes behind, even after Ctrl-C."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from toolchain.cluster import node
from toolchain.demo.story import story

pytestmark = pytest.mark.day

MOST_SECONDS = 540  # The demo takes about 300 s, or longer on a busy machine.
COMMAND = [sys.executable, "-m", "toolchain.demo"]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A Unix socket's path may have at most 107 characters."""
    if reason := node.why_not():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def left_by(temporary: Path) -> list[str]:
    running = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            running += [line] if str(temporary) in (line := command.read_text()) else []
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [*map(str, temporary.iterdir()), *running]


def untracked() -> list[str]:
    command = ["git", "status", "--porcelain", "--ignored"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [line for line in said.splitlines() if "__pycache__" not in line]


def test_the_demo_plays_its_day_and_leaves_nothing(temporary: Path) -> None:
    before = untracked()
    done = subprocess.run(
        COMMAND,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        check=False,
    )
    print(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    for number, step in enumerate(story(), 1):
        assert f"{number} of {len(story())}: {step.cause}" in done.stdout
        for told in step.told:
            assert f" says {told.reason} of " in done.stdout
    assert "tts-" in done.stdout.partition("3 of 6")[2].partition("4 of 6")[0], "who shows tts, which was let in"
    assert "gpumem: " not in done.stdout
    assert left_by(temporary) == []
    assert untracked() == before


@pytest.mark.parametrize("seconds", [5, 40])
def test_an_interrupted_demo_leaves_nothing(temporary: Path, seconds: int) -> None:
    running = subprocess.Popen(
        COMMAND, cwd=ROOT, env={**os.environ, "TMPDIR": str(temporary)}, stderr=subprocess.PIPE, text=True
    )
    time.sleep(seconds)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=MOST_SECONDS)
    assert running.returncode == 130, said
    assert left_by(temporary) == []
