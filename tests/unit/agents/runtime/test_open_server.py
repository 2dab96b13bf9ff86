"""Tests the connections of the metrics server, without sockets."""

from types import SimpleNamespace
from typing import Any

from agents.runtime.open_server import OpenServer


def test_a_connection_belongs_to_its_address_and_not_to_its_port() -> None:
    waiting = [("first", ("10.0.0.7", 4711)), ("second", ("10.0.0.7", 4712))]
    admitted: list[tuple[str, str]] = []

    def accept() -> tuple[str, tuple[str, int]]:
        if not waiting:
            raise BlockingIOError
        return waiting.pop(0)

    server: Any = OpenServer.__new__(OpenServer)
    server._listener = SimpleNamespace(accept=accept)  # noqa: SLF001 (a real socket is for the integration tests)
    server._admit = lambda client, source: admitted.append((client, source))  # noqa: SLF001
    server._accept()  # noqa: SLF001
    assert admitted == [("first", "10.0.0.7"), ("second", "10.0.0.7")]
