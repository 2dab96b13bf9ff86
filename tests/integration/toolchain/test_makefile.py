"""Tests how `make` passes the user's variables on, and how `make test` ends."""

import os
import subprocess

import pytest

from tests.support.paths import ROOT


def make(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if name not in ("STACK", "ARGS") and name[:4] != "MAKE"}
    command = ["make", "-o", "toolchain", *arguments]
    return subprocess.run(command, cwd=ROOT, env=kept | env, capture_output=True, text=True, check=False)


def test_flags_reach_the_command_line_as_they_were_typed() -> None:
    args = "--replace 'urn:a$b::c' -m \"two  words\""
    assert make("-n", "preview", "FULL=1", f"ARGS={args}").stdout == (
        f'.venv/bin/python -m stacks preview --stack="prod" --full -- {args}\n'
    )


@pytest.mark.parametrize("typed", ["stack=lab", "STAK=lab", "Stack=lab"])
def test_a_variable_that_nothing_reads_is_refused(typed: str) -> None:
    """Before the fix, `make preview stack=lab` previewed prod."""
    found = make("-n", "preview", typed)
    assert found.returncode == 2
    assert f"make reads no variable {typed.partition('=')[0]}; it reads STACK ARGS" in found.stderr


def test_render_asks_where_to_before_it_previews() -> None:
    assert "make render STACK=prod OUT=manifests" in make("-n", "render").stderr


@pytest.mark.parametrize(("answer", "asked"), [("1", False), ("", True), ("0", True), ("no", True)])
def test_only_yes_1_is_a_yes(answer: str, asked: bool) -> None:
    for target in ("up", "destroy", "refresh"):
        assert ("--yes" in make("-n", target, f"YES={answer}").stdout) is not asked
