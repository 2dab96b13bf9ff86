"""Tests over real connections that both HTTP servers of the agents behave alike."""

import http.client
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from agents.runtime.errors import AgentError
from agents.runtime.http_message import HEAD_BYTES, HttpRequest, HttpResponse
from agents.runtime.http_server import Server
from agents.runtime.open_server import OpenServer

LONGEST = 100


def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, f"{request.method} {request.path} ".encode() + request.body)


def of_verbs(port: int) -> Server:
    return Server("127.0.0.1", port, echo, idle_seconds=60, body_bytes=LONGEST)


def of_pages(port: int) -> OpenServer:
    return OpenServer("127.0.0.1", port, echo)


@pytest.fixture(params=[of_verbs, of_pages])
def start(request: pytest.FixtureRequest) -> Callable[[int], Server | OpenServer]:
    chosen: Callable[[int], Server | OpenServer] = request.param
    return chosen


@pytest.fixture
def port(start: Callable[[int], Server | OpenServer]) -> Iterator[int]:
    with start(0) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def answered(port: int, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(text)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := client.recv(4096):
            answer += chunk
    return answer


@pytest.mark.parametrize("start", [of_verbs], indirect=True)
def test_a_connection_of_the_verbs_answers_one_request_after_the_other(port: int) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for number in range(3):
        client.request("GET", f"/{number}?x={number}")
        assert client.getresponse().read() == f"GET /{number} ".encode()
    client.close()


@pytest.mark.parametrize("start", [of_verbs], indirect=True)
def test_the_verbs_take_a_body(port: int) -> None:
    assert answered(port, b"POST /filter HTTP/1.1\r\nContent-Length: 2\r\n\r\nab").endswith(b"\r\n\r\nPOST /filter ab")


@pytest.mark.parametrize("start", [of_verbs], indirect=True)
def test_two_requests_in_one_packet_are_two_answers(port: int) -> None:
    assert answered(port, b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n").count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize(
    "text", [b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n"], ids=["close", "HTTP/1.0"]
)
def test_a_client_that_wants_no_more_is_told_that_the_connection_ends(port: int, text: bytes) -> None:
    assert b"Connection: close" in answered(port, text)


@pytest.mark.parametrize(
    "text",
    [
        b"nonsense\r\n\r\n",
        b"GET /" + b"x" * HEAD_BYTES,
        b"GET / HTTP/1.1\r\na: " + b"x" * HEAD_BYTES,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * (HEAD_BYTES // 6),
        b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (LONGEST + 1),
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_ends(port: int, text: bytes) -> None:
    assert answered(port, text).startswith(b"HTTP/1.1 400 Bad Request")


@pytest.mark.parametrize("start", [of_verbs], indirect=True)
def test_a_body_that_breaks_off_is_refused(port: int) -> None:
    text = b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab"
    assert answered(port, text).startswith(b"HTTP/1.1 400 Bad Request")


def test_a_client_that_sends_nothing_is_no_error(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(port, b"") == b""
    assert capsys.readouterr().err == ""


def test_a_port_that_is_taken_is_reported_in_one_sentence(
    port: int, start: Callable[[int], Server | OpenServer]
) -> None:
    with pytest.raises(AgentError, match=f"cannot listen on port {port}: "):
        start(port)
