"""The agents run from the shipped zipapp without the checkout, and reach a server over real TLS."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.api_server import ServedOverTls
from tests.support.environs import RECONCILE, WATCHDOG
from tests.support.fake_cluster import SYSTEM, T4
from tests.support.waiting import PATIENCE_SECONDS

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
        output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, [json.loads(line) for line in output.splitlines()], errors


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
    assert process.wait(timeout=PATIENCE_SECONDS) == 128 + signal.SIGTERM
    assert process.stderr.read() == ""
    return lines


def test_sigterm_ends_a_run_that_waits_for_a_server_that_sends_nothing(zipapp: Path, served: ServedOverTls) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE_SECONDS)
        port = str(silent.getsockname()[1])
        environ = {**WATCHDOG, **served.environ(), "KUBERNETES_SERVICE_PORT": port}
        with started(zipapp, "watchdog", environ) as process:
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


def test_the_zipapp_writes_nothing_next_to_itself(zipapp: Path) -> None:
    run(zipapp, "reconcile", {})
    assert os.listdir(zipapp.parent) == [zipapp.name]
