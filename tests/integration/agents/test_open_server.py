"""Tests over real connections that no client can block the agents' HTTP server for long."""

import http.client
import itertools
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from agents.runtime import open_server
from agents.runtime.http_message import HttpRequest, HttpResponse
from agents.runtime.open_server import CONNECTIONS, CONNECTIONS_A_SOURCE, MetricsServer, OpenServer
from tests.support.paths import ROOT

PAGE = b"a page, "
BEGUN = b"GET / HTTP/1.1\r\nX-Slow: "
ASKED = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"


def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, PAGE)


@contextmanager
def serving(server: OpenServer) -> Iterator[int]:
    with server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
        thread.start()
        yield server.server_address[1]
    thread.join()


def connected(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(source, 0))


def is_open(client: socket.socket) -> bool:
    client.settimeout(0.05)
    try:
        return client.recv(1) != b""
    except TimeoutError:
        return True
    except OSError:
        return False
    finally:
        client.settimeout(60)


def answered(client: socket.socket) -> bytes:
    found = b""
    while chunk := client.recv(2**16):
        found += chunk
    return found


def asked(port: int, source: str = "127.0.0.1") -> bytes:
    with connected(port, source) as client:
        client.sendall(ASKED)
        return answered(client)


def test_a_client_with_too_many_connections_loses_only_its_own() -> None:
    with serving(OpenServer("127.0.0.1", 0, page)) as port, ExitStack() as stack:
        other = stack.enter_context(connected(port, "127.0.0.2"))
        other.sendall(BEGUN)
        held = [stack.enter_context(connected(port)) for _ in range(3 * CONNECTIONS_A_SOURCE)]
        assert PAGE in asked(port)  # because of NAT, a harmless client can have the attacker's address
        open_ones = [is_open(each) for each in held]
        assert open_ones == sorted(open_ones), "the oldest go first"
        assert sum(open_ones) == CONNECTIONS_A_SOURCE - 1
        assert is_open(other)


def test_a_client_with_many_addresses_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_server, "STEP_SECONDS", 60)  # A pass over all connections takes seconds.
    sources = [f"127.0.1.{number}" for number in range(1, 2 * CONNECTIONS // CONNECTIONS_A_SOURCE + 1)]
    with serving(OpenServer("127.0.0.1", 0, page)) as port, ExitStack() as stack:
        held = [
            stack.enter_context(connected(port, source))
            for source in itertools.chain.from_iterable([sources] * CONNECTIONS_A_SOURCE)
        ]
        assert PAGE in asked(port)
        assert sum(map(is_open, held)) == CONNECTIONS - 1


def test_a_request_that_comes_byte_by_byte_ends_by_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_server, "STEP_SECONDS", 0.5)
    with serving(OpenServer("127.0.0.1", 0, page)) as port, connected(port) as client:
        client.sendall(BEGUN)
        began = time.monotonic()
        with suppress(BrokenPipeError, ConnectionResetError):  # The server may close the connection before the send.
            while is_open(client):
                assert time.monotonic() < began + 30
                client.sendall(b"x")


def test_a_client_that_does_not_read_the_answer_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_server, "STEP_SECONDS", 0.5)
    large, dropped, close = HttpResponse(200, b"x" * 2**24), threading.Event(), OpenServer._close  # noqa: SLF001
    monkeypatch.setattr(OpenServer, "_close", lambda *given: (close(*given), dropped.set()))
    with serving(OpenServer("127.0.0.1", 0, lambda request: large)) as port, connected(port) as client:
        client.sendall(ASKED)
        assert dropped.wait(60)
        with suppress(ConnectionResetError):
            assert len(answered(client)) < len(large.body)


def test_a_long_answer_arrives_as_a_whole() -> None:
    large = HttpResponse(200, b"x" * 2**22)
    with serving(OpenServer("127.0.0.1", 0, lambda request: large)) as port:
        assert asked(port).endswith(large.body)


def test_a_page_is_made_a_few_times_a_second_whoever_asks() -> None:
    made = []

    def make(request: HttpRequest) -> HttpResponse:
        made.append(request)
        return page(request)

    began = time.monotonic()
    with serving(OpenServer("127.0.0.1", 0, make)) as port:
        for _ in range(100):
            assert PAGE in asked(port)
    assert len(made) <= 2 + (time.monotonic() - began) / open_server.AGAIN_SECONDS


def test_a_page_that_cannot_be_made_leaves_the_others(capfd: pytest.CaptureFixture[str]) -> None:
    def fail(request: HttpRequest) -> HttpResponse:
        raise KeyError("a bug")

    with serving(OpenServer("127.0.0.1", 0, fail)) as port:
        assert asked(port).startswith(b"HTTP/1.1 500 ")
        assert asked(port).startswith(b"HTTP/1.1 500 ")
    assert "a bug" in capfd.readouterr().err


def test_a_client_that_is_being_answered_when_the_server_ends_has_its_answer() -> None:
    asked_for = threading.Event()

    def slow(request: HttpRequest) -> HttpResponse:
        asked_for.set()
        time.sleep(0.3)
        return page(request)

    with ExitStack() as stack:
        with serving(OpenServer("127.0.0.1", 0, slow)) as port:
            client = stack.enter_context(connected(port))
            client.sendall(ASKED)
            assert asked_for.wait(60)
        assert PAGE in answered(client)


# A program with an HTTP server and few free file descriptors.
SHORT = """
import resource, sys
from agents.runtime.http_message import HttpResponse
from agents.runtime.http_server import Server
from agents.runtime.open_server import OpenServer
page = lambda request: HttpResponse(200, b"a page, ")
server = {server}
resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@pytest.mark.parametrize(
    "server", ['Server("127.0.0.1", 0, page, idle_seconds=60)', 'OpenServer("127.0.0.1", 0, page)']
)
def test_a_server_without_descriptors_waits_and_goes_on(server: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SHORT.format(server=server)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            with ExitStack() as stack:
                for _ in range(CONNECTIONS_A_SOURCE - 1):
                    stack.enter_context(connected(port)).sendall(BEGUN)
                before = cpu_seconds(process.pid)
                time.sleep(2)
                assert cpu_seconds(process.pid) - before < 0.5, "it spins"
            assert PAGE in asked(port)
        finally:
            process.kill()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


class Source:
    def metrics(self) -> tuple[int, str]:
        return 200, "up 1\n"

    def health(self) -> tuple[int, str]:
        return 503, "it hangs\n"


@pytest.fixture
def client() -> Iterator[http.client.HTTPConnection]:
    with serving(MetricsServer(0, Source())) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        yield connection
        connection.close()


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


def test_a_request_with_a_body_is_refused_before_the_body_is_read(client: http.client.HTTPConnection) -> None:
    client.putrequest("GET", "/metrics")
    client.putheader("Content-Length", "1000")
    client.endheaders()
    assert client.getresponse().status == 400
