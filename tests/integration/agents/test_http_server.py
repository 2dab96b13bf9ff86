"""Tests the agents' HTTP server over real connections."""

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from agents.runtime.errors import AgentError
from agents.runtime.http_message import HttpRequest, HttpResponse
from agents.runtime.http_server import MetricsServer, Server
from tests.support.waiting import PATIENCE_SECONDS, eventually

LONGEST = 100
ASKED = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"


def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, f"{request.method} {request.path} ".encode() + request.body)


def broken(request: HttpRequest) -> HttpResponse:
    raise KeyError("a bug")


@contextmanager
def serving(server: Server) -> Iterator[int]:
    with server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def echoing(**limits: Any) -> Server:
    return Server("127.0.0.1", 0, echo, **{"idle_seconds": 60, "body_bytes": LONGEST, **limits})


@pytest.fixture
def port() -> Iterator[int]:
    with serving(echoing()) as found:
        yield found


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)


def answered(port: int, text: bytes) -> bytes:
    answer = b""
    with connected(port) as client, suppress(OSError):  # The server may close the connection first.
        client.sendall(text)
        client.shutdown(socket.SHUT_WR)
        while chunk := client.recv(4096):
            answer += chunk
    return answer


def test_a_connection_answers_one_request_after_the_other(port: int) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    for number in range(3):
        client.request("GET", f"/{number}?x={number}")
        assert client.getresponse().read() == f"GET /{number} ".encode()
    client.close()


def test_a_silent_client_is_left_after_a_while() -> None:
    with serving(echoing(idle_seconds=0.2)) as port, connected(port) as client:
        assert client.recv(1) == b""


def test_only_so_many_connections_have_a_thread() -> None:
    with serving(echoing(connections=2)) as port, ExitStack() as stack:
        for _ in range(2):
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
            stack.callback(client.close)
            client.request("GET", "/")
            client.getresponse().read()
        assert answered(port, ASKED) == b""
        client.close()
        eventually(lambda: answered(port, ASKED))


def test_a_page_that_cannot_be_made_leaves_the_others(capfd: pytest.CaptureFixture[str]) -> None:
    with serving(Server("127.0.0.1", 0, broken)) as port:
        for _ in range(2):
            assert answered(port, ASKED).startswith(b"HTTP/1.1 500 ")
    assert "a bug" in capfd.readouterr().err


def test_a_port_that_is_taken_is_reported_in_one_sentence(port: int) -> None:
    with pytest.raises(AgentError, match=f"cannot listen on port {port}: "):
        Server("127.0.0.1", port, echo)


class Source:
    def metrics(self) -> tuple[int, str]:
        return 200, "up 1\n"

    def health(self) -> tuple[int, str]:
        return 503, "it hangs\n"


ANSWERS = {
    ("GET", "/metrics"): (200, "up 1\n"),
    ("GET", "/metrics?x=y"): (200, "up 1\n"),
    ("GET", "/healthz"): (503, "it hangs\n"),
    ("GET", "/"): (404, "there are /metrics and /healthz\n"),
    ("POST", "/metrics"): (405, "only GET is allowed\n"),
}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_there_are_metrics_and_health_and_nothing_else(host: str) -> None:
    with serving(MetricsServer(0, Source())) as port:
        for asked, expected in ANSWERS.items():
            client = http.client.HTTPConnection(host, port, timeout=PATIENCE_SECONDS)
            client.request(*asked)
            answer = client.getresponse()
            assert (answer.status, answer.read().decode()) == expected, asked
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            client.close()
