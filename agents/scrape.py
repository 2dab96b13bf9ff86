"""What a node agent serves: GET /metrics to Prometheus, GET /healthz to the kubelet."""

import http.client
from functools import partial
from typing import Protocol

from agents import serving
from agents.serving import SAMPLES, Answer, Request

_IDLE_SECONDS = 5.0  # a client that says nothing


class Source(Protocol):
    """What is served: each answer is a status and a body."""

    def metrics(self) -> tuple[int, str]: ...

    def health(self) -> tuple[int, str]: ...


class Server(serving.Server):
    """Listens on every address."""

    def __init__(self, port: int, source: Source) -> None:
        super().__init__("", port, partial(_answer, source), idle_seconds=_IDLE_SECONDS)


def _answer(source: Source, request: Request) -> Answer:
    if request.method != "GET":
        status, body = http.client.METHOD_NOT_ALLOWED, "there is nothing but GET\n"
    elif request.path == "/healthz":
        status, body = source.health()
    elif request.path == "/metrics":
        status, body = source.metrics()
    else:
        status, body = http.client.NOT_FOUND, "there are /metrics and /healthz\n"
    return Answer(status, body.encode(), SAMPLES)
