"""Tests the GET requests and the errors of the agents' HTTP clients over real connections."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from agents.runtime import http_client
from agents.runtime.http_client import FetchError, fetch
from agents.runtime.http_server import MetricsServer
from tests.support.exporters import card, device_reader


@pytest.fixture
def address() -> Iterator[str]:
    with MetricsServer(0, device_reader(card(1024))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_an_error_has_the_servers_words_or_the_address(address: str) -> None:
    with pytest.raises(FetchError, match=r"http://127\.0\.0\.1:1/: .*refused"):
        fetch("http://127.0.0.1:1/")
    with pytest.raises(FetchError, match="HTTP 404: there are /metrics and /healthz"):
        fetch(f"{address}/nothing")


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"], ids=["head", "body"])
def test_a_server_that_sends_a_byte_now_and_then_is_left_at_the_deadline(
    head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "TOTAL_SECONDS", 0.5)
    ended = threading.Event()

    def trickle(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.sendall(head)
            while not ended.wait(0.1):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=trickle, args=[server])
        thread.start()
        with pytest.raises(FetchError, match=r"no complete answer within 0\.5 s"):
            fetch(f"http://127.0.0.1:{server.getsockname()[1]}/")
        ended.set()
        thread.join()


def test_an_answer_over_the_limit_is_refused(address: str) -> None:
    with pytest.raises(FetchError, match="over 2 bytes"):
        fetch(f"{address}/healthz", 2)


def answer_once(answer: bytes) -> tuple[int, threading.Thread]:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server, server.accept()[0] as connection:
            connection.recv(65_536)
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return int(server.getsockname()[1]), thread


REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("to", [b"http://[bad", b"/healthz", b"http://127.0.0.1:%d/healthz"])
def test_no_redirect_is_followed(to: bytes, address: str) -> None:
    """If the client followed redirects, a tenant's endpoint could send the gate's requests to any address."""
    target = to % int(address.rpartition(":")[2]) if b"%d" in to else to
    port, thread = answer_once(REDIRECT % target)
    with pytest.raises(FetchError, match="HTTP 302: Found"):
        fetch(f"http://127.0.0.1:{port}/")
    thread.join()
