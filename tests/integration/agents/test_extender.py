"""Tests the extender as a process that runs from the shipped zipapp."""

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_server import ServedOverTls
from tests.support.extenders import PATIENCE_SECONDS, publish, running
from tests.support.fake_cluster import SYSTEM, T4


def test_if_a_thread_ends_the_process_ends_and_says_why(
    served: ServedOverTls, zipapp: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without this thread, the extender would appear healthy but refuse every pod."""
    served.cluster.add_ledger(T4)
    served.cluster.objects[f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"] = {"kind": "LeaseList"}
    with running(served, zipapp, LEASE=f"{SYSTEM}/scheduler") as extender:
        assert extender.process.wait(PATIENCE_SECONDS) == 1
    assert "Traceback" in capfd.readouterr().err


def test_only_the_pods_own_scheduler_may_call_bind(served: ServedOverTls, zipapp: Path) -> None:
    """A server on every address would also answer at 127.0.0.2."""
    served.cluster.add_ledger(T4)
    with running(served, zipapp) as extender:
        assert extender.bind("absent")["Error"]
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", extender.verbs_port), PATIENCE_SECONDS)


def test_every_verb_is_answered_while_a_bind_waits_for_the_api(
    served: ServedOverTls, zipapp: Path, monkeypatch: pytest.MonkeyPatch
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
    with running(served, zipapp) as extender:
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
