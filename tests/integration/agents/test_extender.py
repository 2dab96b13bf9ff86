"""Tests the extender as a process that runs from the shipped zipapp."""

import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agents.extender import certs
from tests.support.api_server import ServedOverTls
from tests.support.extenders import PATIENCE_SECONDS, publish, running
from tests.support.fake_cluster import SYSTEM, T4


def test_if_a_thread_ends_the_process_ends_and_says_why(
    served: ServedOverTls, zipapp: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without this thread, the extender would appear healthy but refuse every pod."""
    served.cluster.add_ledger(T4)
    served.cluster.objects[f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"] = {"kind": "LeaseList"}
    with running(served, zipapp, tmp_path, LEASE=f"{SYSTEM}/scheduler") as extender:
        assert extender.process.wait(PATIENCE_SECONDS) == 1
    assert "Traceback" in capfd.readouterr().err


def answer_to_a_bind(port: int, context: ssl.SSLContext | None) -> bytes:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as plain:
        client = plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")
        with client:
            client.sendall(b"POST /bind HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
            return client.recv(100)
    return b""


def test_only_the_pods_own_scheduler_may_call_bind(served: ServedOverTls, zipapp: Path, tmp_path: Path) -> None:
    """Only the extender's own host can connect to its port for kube-scheduler."""
    served.cluster.add_ledger(T4)
    own_folder, other_folder = tmp_path / "own", tmp_path / "other"
    for folder in (own_folder, other_folder):
        folder.mkdir()
    certs.make_certificates(other_folder)
    with running(served, zipapp, own_folder) as extender:
        nobody, other, own = (ssl.create_default_context(cafile=own_folder / "server.crt") for _ in range(3))
        for context, folder in ((other, other_folder), (own, own_folder)):
            context.load_cert_chain(folder / "client.crt", folder / "client.key")
        for refused in (None, nobody, other):
            assert b"HTTP" not in answer_to_a_bind(extender.verbs_port, refused)
        assert answer_to_a_bind(extender.verbs_port, own).startswith(b"HTTP/1.1 200 OK")
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", extender.verbs_port), PATIENCE_SECONDS)


def test_every_verb_is_answered_while_a_bind_waits_for_the_api(
    served: ServedOverTls, zipapp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, may_go_on, answer = threading.Event(), threading.Event(), served.cluster.answer

    def slow(method: str, url: str, body: Any) -> Any:
        if url.endswith("/slow/binding"):
            waits.set()
            may_go_on.wait(PATIENCE_SECONDS)
        return answer(method, url, body)

    monkeypatch.setattr(served.cluster, "answer", slow)
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    publish(served.cluster, 8000 + T4.reserve_mib, 4000 + T4.reserve_mib)
    with running(served, zipapp, tmp_path) as extender:
        extender.filter(8000, "slow")
        binding = threading.Thread(target=extender.bind, args=("slow",))
        binding.start()
        try:
            assert waits.wait(PATIENCE_SECONDS)
            assert extender.filter(4000, "quick")["NodeNames"] == ["k8s-node1"]
            assert extender.bind("quick") == {"Error": ""}
            assert extender.get("/metrics")[0] == 200
            assert not may_go_on.is_set()
        finally:
            may_go_on.set()
            binding.join(PATIENCE_SECONDS)
