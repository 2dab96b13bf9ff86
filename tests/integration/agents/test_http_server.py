"""The small HTTP server and what node agents serve with it, over real connections."""

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from agents.runtime.errors import AgentError
from agents.runtime.http_server import HttpRequest, HttpResponse, MetricsServer, Server

LONGEST = 100


def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, f"{request.method} {request.path} ".encode() + request.body)


@pytest.fixture
def port() -> Iterator[int]:
    with Server("127.0.0.1", 0, echo, idle_seconds=60, body_bytes=LONGEST) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def said(port: int, text: bytes) -> bytes:
    """All that the server says to this text."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(text)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := client.recv(4096):
            answer += chunk
    return answer


def test_a_connection_answers_one_request_after_the_other(port: int) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for number in range(3):
        client.request("POST", f"/filter?x={number}", body=str(number))
        assert client.getresponse().read() == f"POST /filter {number}".encode()
    client.close()


def test_two_requests_in_one_packet_are_two_answers(port: int) -> None:
    assert said(port, b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n").count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize(
    "text", [b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n"], ids=["close", "HTTP/1.0"]
)
def test_a_client_that_wants_no_more_is_told_that_the_connection_ends(port: int, text: bytes) -> None:
    assert b"Connection: close" in said(port, text)


@pytest.mark.parametrize(
    "text",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 99 + b"\r\n",
        b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\na: " + b"x" * 9000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (LONGEST + 1),
        b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab",
    ],
)
def test_what_is_no_whole_request_is_refused_and_the_connection_ends(port: int, text: bytes) -> None:
    assert said(port, text).startswith(b"HTTP/1.1 400 Bad Request")


def test_a_client_that_says_nothing_is_no_error(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(port, b"") == b""
    assert capsys.readouterr().err == ""


def test_a_port_that_is_taken_is_told_of_in_one_sentence(port: int) -> None:
    with pytest.raises(AgentError, match=f"cannot listen on port {port}: "):
        Server("127.0.0.1", port, echo, idle_seconds=60)


class Source:
    def metrics(self) -> tuple[int, str]:
        return 200, "up 1\n"

    def health(self) -> tuple[int, str]:
        return 503, "it hangs\n"


@pytest.fixture
def client() -> Iterator[http.client.HTTPConnection]:
    with MetricsServer(0, Source()) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
        thread.start()
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
        yield connection
        connection.close()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/metrics", 200, "up 1\n"),
        ("GET", "/metrics?x=y", 200, "up 1\n"),
        ("GET", "/healthz", 503, "it hangs\n"),
        ("GET", "/", 404, "there are /metrics and /healthz\n"),
        ("DELETE", "/metrics", 405, "only GET is allowed\n"),
    ],
)
def test_there_are_metrics_and_health_and_nothing_else(
    client: http.client.HTTPConnection, method: str, path: str, status: int, body: str
) -> None:
    client.request(method, path)
    answer = client.getresponse()
    assert (answer.status, answer.read().decode()) == (status, body)
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_who_announces_a_body_is_refused_before_it_is_read(client: http.client.HTTPConnection) -> None:
    """Anybody in the cluster reaches the port: what it sends must take no memory."""
    client.putrequest("GET", "/metrics")
    client.putheader("Content-Length", "1000")
    client.endheaders()
    assert client.getresponse().status == 400
