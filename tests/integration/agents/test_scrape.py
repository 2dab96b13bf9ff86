"""Tests over real connections that an exporter harms only its own scrape."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from agents.runtime import http_client
from agents.runtime.http_message import SAMPLES, HttpResponse
from agents.runtime.items import Unjudged
from agents.telemetry import scrape as scraping
from agents.telemetry.scrape import scrape
from tests.support.waiting import PATIENCE_SECONDS

PAGE = HttpResponse(200, b"page\n", SAMPLES).encoded(last=True)


@contextmanager
def exporter(answer: bytes | None, host: str = "127.0.0.1") -> Iterator[str]:
    """Serves one connection. If `answer` is None, accepts the connection and never answers."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(65_536)
                connection.sendall(answer or b"")

        thread = threading.Thread(target=serve)
        if answer is not None:
            thread.start()
        where = f"[{host}]" if ":" in host else host
        yield f"http://{where}:{server.getsockname()[1]}/metrics"
        if answer is not None:
            thread.join()


@pytest.mark.parametrize("at_once", [1, 2, 64])
def test_an_exporter_that_hangs_delays_none_of_the_others(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the silent exporters have a short limit, so that a slow machine makes none of the others late."""
    monkeypatch.setattr(scraping, "AT_ONCE", at_once)
    with ExitStack() as stack:
        silent = [stack.enter_context(exporter(None)) for _ in range(2)]
        others = [stack.enter_context(exporter(PAGE)) for _ in range(5)]

        def each() -> Iterator[str]:
            for url in (silent[0], *others, silent[1]):
                monkeypatch.setattr(http_client, "TOTAL_SECONDS", 0.1 if url in silent else PATIENCE_SECONDS)
                yield url

        pages = dict(scrape(each()))
    assert [pages[url] for url in others] == [b"page\n"] * 5
    late = [page.why for page in map(pages.get, silent) if isinstance(page, Unjudged)]
    assert [why.partition(" within ")[0] for why in late] == [f"{url}: no complete answer" for url in silent]


def test_only_an_ip_address_is_asked_because_a_lookup_of_a_name_would_block() -> None:
    ((_, page),) = scrape(["http://localhost:1/metrics"])
    assert isinstance(page, Unjudged)
    assert "Name or service not known" in page.why


@pytest.mark.parametrize(
    ("answer", "page"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\npage\n\r\n0\r\n\r\n", b"page\n"),
        (b"HTTP/1.1 200 OK\r\nserver: envoy\r\ncontent-length: 5\r\n\r\npage\n", b"page\n"),
        (PAGE[:-1], "IncompleteRead"),
        (b"", "closed connection without response"),
        (b"SSH-2.0\r\n", "SSH-2.0"),
    ],
    ids=["chunked", "by a proxy", "truncated", "empty", "of another protocol"],
)
def test_a_response_of_another_form_is_read_or_refused(answer: bytes, page: bytes | str) -> None:
    with exporter(answer) as url:
        (found,) = dict(scrape([url])).values()
    assert found == page if isinstance(page, bytes) else page in str(found)
