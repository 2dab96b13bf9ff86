"""What a node agent serves, over real connections."""

import http.client
import threading
from collections.abc import Iterator

import pytest

from agents.scrape import Server


class Source:
    def metrics(self) -> tuple[int, str]:
        return 200, "up 1\n"

    def health(self) -> tuple[int, str]:
        return 503, "it hangs\n"


@pytest.fixture
def client() -> Iterator[http.client.HTTPConnection]:
    with Server(0, Source()) as server:
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
        ("DELETE", "/metrics", 405, "there is nothing but GET\n"),
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
