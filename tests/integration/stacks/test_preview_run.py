"""Tests how a preview runs Pulumi: its output, its exit code and signals."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from stacks.engine import Engine
from stacks.preview import run
from tests.support.streams import STACK, judged, lines, root, summary
from tests.support.waiting import PATIENCE_SECONDS, eventually

ROOT = Path(__file__).resolve().parents[3]
GATE = ("--policy-pack", "policy")


def engine(folder: Path, script: str) -> Engine:
    (folder / "events.json").write_text("".join(lines([root(), judged(), summary()])))
    path = folder / ".toolchain" / "bin" / "pulumi"
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\nhere={folder}\nemit() {{ cat "$here/events.json"; }}\n{script}\n')
    path.chmod(0o755)
    return Engine(folder, "lab", os.environ)


def quietly(folder: Path, script: str, *arguments: str) -> run.PreviewOutcome:
    return run.preview_quietly(engine(folder, script), "preview", *arguments)


def test_the_events_come_by_stdout_and_everything_else_by_stderr(tmp_path: Path) -> None:
    script = 'echo "$PULUMI_ENABLE_STREAMING_JSON_PREVIEW $*" >&2; emit; exit 7'
    ended = quietly(tmp_path, script, *GATE, "--color", "always")
    said = "true preview --stack lab --policy-pack policy --color always --json --non-interactive --color never\n"
    assert (ended.code, ended.stderr, ended.displayed) == (7, said, False)
    assert ended.events.resources.keys() == {STACK}
    assert ended.events.succeeded
    assert ended.seconds > 0


def test_a_killed_pulumi_has_the_shells_code(tmp_path: Path) -> None:
    assert quietly(tmp_path, "emit; kill -KILL $$").exit_code == 137


def test_pulumis_own_display_goes_to_the_terminal_and_its_events_to_a_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = 'echo "$PULUMI_DEBUG_COMMANDS $*"; for last; do :; done; emit > "$last"; echo oh >&2; exit 3'
    ended = run.preview_displayed(engine(tmp_path, script), "preview", *GATE, "--diff")
    out, err = capfd.readouterr()
    assert out.startswith("true preview --stack lab --policy-pack policy --diff --suppress-progress --event-log /")
    assert err == "oh\n"
    assert (ended.code, ended.displayed, ended.events.succeeded) == (3, True, True)
    assert not Path(out.split()[-1]).exists()


def test_ctrl_c_in_pulumis_own_display_is_an_interruption(tmp_path: Path) -> None:
    said = {"stdoutEvent": {"message": "<{%fg 9%}>^C received; cancelling.<{%reset%}>"}}
    cancelled = "".join(lines([root(), said, summary("failed")]))
    script = f"for last; do :; done; echo '{cancelled}' > \"$last\"; exit 1"
    assert run.preview_displayed(engine(tmp_path, script), "preview", *GATE).interrupted


def waiting_for(number: signal.Signals) -> str:
    name = number.name.removeprefix("SIG")
    wait = "while [ $((tries += 1)) -lt 10000 ] && [ ! $stop ]; do sleep 0.05; done"
    return f"trap 'echo {name} >&2; stop=1' {name}; tries=0; echo > $here/started; {wait}; emit"


def test_a_sigterm_that_comes_while_pulumi_starts_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminated(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **given: Any) -> None:
            super().__init__(*arguments, **given)
            eventually((tmp_path / "started").exists)
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Terminated)
    ended = quietly(tmp_path, waiting_for(signal.SIGTERM))
    assert (ended.interrupted, ended.stderr, ended.exit_code) == (True, "TERM\n", 130)


CHILD = """
import os, sys
from pathlib import Path
from stacks.engine import Engine
from stacks.preview import run
ended = run.preview_quietly(Engine(Path(sys.argv[1]), "lab", os.environ), "preview")
print(ended.interrupted, ended.code, ended.exit_code, ended.stderr.split())
"""


@pytest.mark.parametrize(
    ("number", "whole_group"),
    [(signal.SIGINT, True), (signal.SIGTERM, False)],
    ids=["Ctrl-C at the terminal", "SIGTERM for us alone"],
)
def test_an_interrupted_preview_lets_pulumi_finish_and_fails(
    tmp_path: Path, number: signal.Signals, whole_group: bool
) -> None:
    """Pulumi gets the signal once, and cleans up. The preview fails even if Pulumi's exit code is 0."""
    command = [sys.executable, "-c", CHILD, str(engine(tmp_path, waiting_for(number)).root)]
    ours = {"start_new_session": True, "cwd": ROOT, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **ours) as child:  # type: ignore[call-overload]
        try:
            eventually((tmp_path / "started").exists)
            (os.killpg if whole_group else os.kill)(child.pid, number)
            out, _ = child.communicate(timeout=PATIENCE_SECONDS)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    assert out == f"True 0 130 ['{number.name.removeprefix('SIG')}']\n"


def test_a_logged_command_writes_its_display_into_a_file_and_its_events_come_while_it_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    came: list[tuple[int, bool]] = []

    def watch(lines: Iterable[str], signalled: bool) -> None:
        came.append((len([*lines]), signalled))
        if sum(count for count, _ in came) == len(lines_of_events):
            (tmp_path / "go").touch()

    lines_of_events = lines([root(), judged(), summary()])
    first = 'for last; do :; done; head -n 1 $here/events.json > "$last"; printf \'{"torn\' >> "$last"'
    rest = 'printf \'": 1}\\n\' >> "$last"; sed 1,2d $here/events.json >> "$last"'
    wait = "while [ $((tries += 1)) -lt 400 ] && [ ! -e $here/go ]; do sleep 0.05; done"
    script = f"echo shown; echo oh >&2; {first}; sleep 1.5; {rest}; tries=0; {wait}; exit 4"
    log = tmp_path / "logs" / "lab-up.log"
    code = run.run_logged(engine(tmp_path, script), "up", "--yes", environment={}, log=log, watch=watch)
    assert (code, log.read_text(), capfd.readouterr()) == (4, "shown\noh\n", ("", ""))
    assert [count for count, _ in came if count] == [1, 2]
    assert not any(signalled for _, signalled in came)
