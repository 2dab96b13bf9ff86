"""Serves an agent's metrics and health without a socket."""

import errno
import http.client
import io
import itertools
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from unittest import mock
from urllib.parse import urlsplit
from urllib.response import addinfourl

from agents.runtime.http_message import HttpRequest
from agents.runtime.http_server import MetricsSource, answer_scrape

_PORTS = itertools.count(40_000)
_WIRE = urllib.request.HTTPHandler.http_open


@contextmanager
def serving(source: MetricsSource) -> Iterator[int]:
    port = next(_PORTS)
    elsewhere = urllib.request.HTTPHandler.http_open

    def http_open(handler: urllib.request.HTTPHandler, asked: urllib.request.Request) -> object:
        split = urlsplit(asked.full_url)
        if (split.hostname, split.port) != ("127.0.0.1", port):
            if elsewhere is not _WIRE:
                return elsewhere(handler, asked)
            raise urllib.error.URLError(ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)))
        answer = answer_scrape(source, HttpRequest(method=asked.get_method(), path=split.path))
        found = addinfourl(io.BytesIO(answer.body), Message(), asked.full_url, answer.status)
        found.msg = http.client.responses[answer.status]  # type: ignore[attr-defined] (urllib reads it)
        return found

    with mock.patch.object(urllib.request.HTTPHandler, "http_open", http_open):
        yield port
