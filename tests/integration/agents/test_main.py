"""The agents run from the shipped zipapp without the checkout, and reach a server over real TLS."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from agents.__main__ import main
from tests.support.api_server import ServedOverTls
from tests.support.environs import RECONCILE, TTS, WATCHDOG, gates
from tests.support.fake_cluster import SYSTEM, T4
from tests.support.fixtures import LOADED_SECONDS
from tests.support.paths import ROOT

PATIENT = {**RECONCILE, "RUN_SECONDS": "600", "INTERVAL_SECONDS": "300"}


@contextmanager
def started(zipapp: Path, agent: str, environ: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-I", str(zipapp), agent],
        env=dict(environ),
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def run(zipapp: Path, agent: str, environ: Mapping[str, str]) -> tuple[int, list[dict[str, object]], str]:
    with started(zipapp, agent, environ) as process:
        output, errors = process.communicate(timeout=60)
    return process.returncode, [json.loads(line) for line in output.splitlines()], errors


@pytest.mark.parametrize("argv", [[], ["scheduler"], ["gate", "watchdog"], ["--help"]])
def test_an_unknown_agent_is_refused_in_one_sentence(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "name one agent of exporter, extender, gate, guard, reconcile, watchdog, certify "
        f"(got {' '.join(argv) or 'nothing'})\n"
    )


def test_the_shipped_reconcile_advertises(zipapp: Path, served: ServedOverTls) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    environ = {**RECONCILE, **served.environ(), "LEDGER_NAMESPACE": SYSTEM, "RUN_SECONDS": "0"}
    status, lines, errors = run(zipapp, "reconcile", environ)
    assert (status, errors) == (0, "")
    assert served.cluster.shown() == ("14k", "14k", "14k", "14k")
    assert [line["message"] for line in lines] == ["starts", "wrote", "all nodes are up to date"]
    assert all({"ts", "level", "agent", "message"} <= line.keys() for line in lines)
    assert {line["agent"] for line in lines} == {"reconcile"}


@pytest.mark.parametrize("agent", ["reconcile", "watchdog", "gate", "extender", "exporter", "guard"])
def test_each_archive_has_all_that_its_agents_import_and_a_mistake_is_one_line(
    zipapp: Path, node_zipapp: Path, agent: str
) -> None:
    archive = node_zipapp if agent in ("exporter", "guard") else zipapp
    status, lines, errors = run(archive, agent, {})
    assert (status, errors) == (1, "")
    (line,) = lines
    assert line["level"] == "error"
    assert "is not set; set it in the agent's manifest" in str(line["message"])


def stopped(process: subprocess.Popen[str]) -> list[dict[str, object]]:
    assert process.stdout is not None
    assert process.stderr is not None
    process.send_signal(signal.SIGTERM)
    lines = [json.loads(line) for line in process.stdout]
    assert process.wait(timeout=LOADED_SECONDS) == 128 + signal.SIGTERM
    assert process.stderr.read() == ""
    return lines


def test_sigterm_ends_a_run_within_two_seconds(zipapp: Path, served: ServedOverTls) -> None:
    took_seconds = []
    for _ in range(3):
        with started(zipapp, "reconcile", {**PATIENT, **served.environ(), "LEDGER_NAMESPACE": SYSTEM}) as process:
            assert process.stdout is not None
            assert "starts" in process.stdout.readline()
            began = time.monotonic()
            stopped(process)
            took_seconds.append(time.monotonic() - began)
    assert min(took_seconds) < 2  # A busy machine delays some attempts.


@pytest.mark.parametrize(("agent", "environ"), [("reconcile", RECONCILE), ("watchdog", WATCHDOG), ("gate", gates(TTS))])
def test_sigterm_ends_a_run_that_waits_for_a_server_that_sends_nothing(
    zipapp: Path, served: ServedOverTls, agent: str, environ: Mapping[str, str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        port = str(silent.getsockname()[1])
        with started(zipapp, agent, {**environ, **served.environ(), "KUBERNETES_SERVICE_PORT": port}) as process:
            connected, _ = silent.accept()
            with connected:
                assert stopped(process)[-1]["message"] == "stopped by SIGTERM"


def test_sigterm_ends_a_run_that_watches(zipapp: Path, served: ServedOverTls) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    served.cluster.watches_last = True
    with started(zipapp, "reconcile", {**PATIENT, **served.environ(), "LEDGER_NAMESPACE": SYSTEM}) as process:
        served.cluster.await_watches(3)
        assert stopped(process)[-1]["message"] == "stopped by SIGTERM"


def test_sigterm_ends_a_call_that_no_signal_interrupts() -> None:
    """The call stays in C code for minutes, like getaddrinfo without a name server."""
    program = """
import hashlib, importlib.machinery, sys, types
import agents.__main__
from agents.runtime.errors import StoppedError

def start(environ, log):
    try:
        log.info("starts")
    except StoppedError:
        pass  # before the call; as good as in it
    while True:
        try:
            hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
        except StoppedError:
            pass

agent = types.ModuleType("agents.reconcile.main")
agent.__spec__ = importlib.machinery.ModuleSpec("agents.reconcile.main", None)
agent.start = start
sys.modules["agents.reconcile.main"] = agent
sys.exit(agents.__main__.main(["reconcile"]))
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "starts" in process.stdout.readline()
        (line,) = stopped(process)
        assert line["message"] == "stopped by SIGTERM, in the middle of a call"


@pytest.mark.parametrize("moment", ["threading.Thread.start", "agents.runtime.log.Log.error"])
def test_sigterm_ends_a_run_from_the_handlers_first_instruction_to_the_last_line(moment: str) -> None:
    program = f"""
import os, signal, sys, unittest.mock
import agents.__main__
with unittest.mock.patch({moment!r}, lambda *_: os.kill(os.getpid(), signal.SIGTERM)):
    sys.exit(agents.__main__.main(["reconcile"]))
"""
    call = [sys.executable, "-c", program]
    ended = subprocess.run(call, cwd=ROOT, env={}, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGTERM, "")
    assert json.loads(ended.stdout)["message"] == "stopped by SIGTERM"


def test_the_zipapp_writes_nothing_next_to_itself(zipapp: Path) -> None:
    run(zipapp, "reconcile", {})
    assert os.listdir(zipapp.parent) == [zipapp.name]
