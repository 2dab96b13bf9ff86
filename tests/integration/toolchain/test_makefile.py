"""Tests that `make` passes the user's variables as arguments, so that no shell evaluates them."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT


def make(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if name not in ("STACK", "ARGS") and name[:4] != "MAKE"}
    command = ["make", "-o", "toolchain", *arguments]
    return subprocess.run(command, cwd=ROOT, env=kept | env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "name",
    [
        "prod;touch {}",
        "$(touch {})",
        "`touch {}`",
        '"; touch {}; "',
        "'; touch {}; '",
        "$(shell touch {})",
        "&touch {}",
    ],
)
def test_a_hostile_stack_is_a_sentence_and_is_never_executed(name: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    stack = name.format(made)
    for done in (make("chart", f"STACK={stack}"), make("chart", STACK=stack)):
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"{stack!r} is no stack's name: ")
    assert not made.exists()


def test_flags_reach_the_command_line_as_they_were_typed() -> None:
    args = "--replace 'urn:a$b::c' -m \"two  words\""
    assert make("-n", "preview", "FULL=1", f"ARGS={args}").stdout == (
        f'.venv/bin/python -m stacks preview --stack="$GIVEN_STACK" --full -- {args}\n'
    )


@pytest.mark.parametrize(("answer", "asked"), [("1", False), ("", True), ("0", True), ("no", True)])
def test_only_yes_1_is_a_yes(answer: str, asked: bool) -> None:
    for target in ("up", "destroy", "refresh", "recover"):
        assert ("--yes" in make("-n", target, f"YES={answer}").stdout) is not asked


def test_make_alone_lists_the_targets() -> None:
    listed = make().stdout
    assert "  make preview" in listed
    assert "  make test" in listed
