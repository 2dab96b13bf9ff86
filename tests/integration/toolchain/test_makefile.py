"""Tests how `make` passes the user's variables on, and how `make test` ends."""

import os
import subprocess
from pathlib import Path

import pytest

from tests import levels
from tests.support.paths import ROOT
from tests.support.scripts import script


def make(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if name not in ("STACK", "ARGS") and name[:4] != "MAKE"}
    command = ["make", "-o", "toolchain", *arguments]
    return subprocess.run(command, cwd=ROOT, env=kept | env, capture_output=True, text=True, check=False)


def test_flags_reach_the_command_line_as_they_were_typed() -> None:
    args = "--replace 'urn:a$b::c' -m \"two  words\""
    assert make("-n", "preview", "FULL=1", f"ARGS={args}").stdout == (
        f'.venv/bin/python -m stacks preview --stack="prod" --full -- {args}\n'
    )


@pytest.mark.parametrize(("answer", "asked"), [("1", False), ("", True), ("0", True), ("no", True)])
def test_only_yes_1_is_a_yes(answer: str, asked: bool) -> None:
    for target in ("up", "destroy", "refresh", "recover"):
        assert ("--yes" in make("-n", target, f"YES={answer}").stdout) is not asked


REPORT = "<testsuites><testsuite><testcase classname='a.b' name='test_c' time='1.5'/></testsuite></testsuites>"


def test_a_red_level_ends_the_tests_red_and_with_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script(tmp_path / "make", f'[ $2 = lint ] || {{ echo "{REPORT}" > "${{PYTEST_ADDOPTS##*=}}"; exit 3; }}')
    monkeypatch.setenv("PATH", os.pathsep.join((str(tmp_path), os.defpath)))
    assert levels.main([]) == 3
    _, table = capfd.readouterr().out.split("\nlevel ")
    assert [line.split() for line in table.splitlines()[1:3]] == [
        ["lint", "-", "0", "passed"],
        ["unit", "1", "0", "failed", "(exit", "code", "3)"],
    ]
    assert table.endswith("\nThe slowest tests:\n    1.5 s  a.b::test_c\n")
