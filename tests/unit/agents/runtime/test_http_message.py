"""Tests that any bytes give a request or a RequestError."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.runtime.http_message import RequestError, read_head, text_response

MOST = 1000
WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="?"), min_size=1, max_size=20)


@given(st.sampled_from(("GET", "POST")), WORDS, st.integers(0, MOST), st.booleans())
def test_what_a_client_writes_is_read(method: str, path: str, length: int, last: bool) -> None:
    close = b"Connection: CLOSE\r\n" if last else b""
    text = (
        f"{method} {path}?timeout=5s HTTP/1.1\r\nHost: x\r\n".encode() + close + f"content-LENGTH:  {length} ".encode()
    )
    head = read_head(text, MOST)
    assert (head.method, head.path, head.body_bytes, head.last) == (method, path, length, last)


@pytest.mark.parametrize(
    ("given_host", "host"),
    [
        (b"localhost:8000", "localhost"),
        (b"127.0.0.1", "127.0.0.1"),
        (b"[::1]:80", "[::1]"),
        (b"x:", "x"),
        (b"x:80:80", "x:80"),
        (b"", ""),
    ],
)
def test_the_host_has_no_port(given_host: bytes, host: str) -> None:
    assert read_head(b"GET / HTTP/1.1\r\nhost: " + given_host, MOST).host == host
    assert read_head(b"GET / HTTP/1.1", MOST).host == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is not an HTTP/1.1 request"),
        (b"GET /", "is not an HTTP/1.1 request"),
        (b"GET / HTTP/2", "is not an HTTP/1.1 request"),
        (b"\xff\xfe / HTTP/1.1 x", "is not an HTTP/1.1 request"),
        (b"GET / HTTP/1.1\r\nno colon", "a header is malformed"),
        (b"POST / HTTP/1.1\r\nContent-Length: -1", "a Content-Length of at most 1000"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1001", "a Content-Length of at most 1000"),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"0" * 5000, "a Content-Length of at most 1000"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked", "a Content-Length of at most 1000"),
    ],
)
def test_what_is_no_request_is_refused_in_a_sentence(text: bytes, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        read_head(text, MOST)


@given(st.binary(max_size=200))
def test_whatever_comes_is_a_head_or_refused(text: bytes) -> None:
    try:
        head = read_head(text, MOST)
    except RequestError:
        return
    assert 0 <= head.body_bytes <= MOST


def test_the_last_answer_of_a_connection_ends_it() -> None:
    found = [text_response(404, "not here").encoded(last=last) for last in (True, False)]
    assert [b"Connection: close\r\n" in each for each in found] == [True, False]
