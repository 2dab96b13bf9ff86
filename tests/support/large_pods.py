"""A fake API server with many pods, or with pods with large annotations.

`python -m tests.support.large_pods <kind> <pods>` reads the pods like an agent, and prints the peak of host memory in
MiB.
"""

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from agents.exporter import main as exporter
from agents.kube.client import Api, Endpoint, Object
from agents.kube.informer import Watches, read_list
from agents.kube.pods import PODS
from agents.kube.transport import ApiRequest, ApiResponse
from agents.node.pods import node_pod
from agents.runtime.clock import Clock
from agents.runtime.items import ItemProblems
from agents.runtime.log import Log
from agents.watchdog import main as watchdog

EVENTS = 10
PIECE_BYTES = 64 * 2**10


def manifest(name: str, spec: str = "", metadata: str = "") -> str:
    containers = '"containers":[{"name":"c"}]'
    fields = f'"namespace":"n","name":"{name}","uid":"uid-{name}","resourceVersion":"1"{metadata}'
    return f'{{"kind":"Pod","metadata":{{{fields}}},"spec":{{{containers}{spec}}}}}'


def annotated(name: str) -> str:
    value = "x" * 200 * 1024
    return manifest(name, "", f',"annotations":{{"a":"{value}"}}')


def usual(name: str) -> str:
    argument = "x" * 7600
    return manifest(name, f',"args":["{argument}"]')


KINDS: Mapping[str, Callable[[str], str]] = {each.__name__: each for each in (usual, annotated)}


class LargePods:
    def __init__(self, make: Callable[[str], str], pods: int) -> None:
        self._pods = pods
        whole = make("NAME").encode()
        end = whole.index(b"resourceVersion")
        self._head, self._rest = whole[:end], whole[end:]

    def head(self, number: int) -> bytes:
        return self._head.replace(b"NAME", b"p%d" % number)

    def send(self, request: ApiRequest) -> ApiResponse:
        query = {key: values[0] for key, values in parse_qs(urlsplit(request.path).query).items()}
        start = int(query.get("continue", 0))
        end = min(start + int(query["limit"]), self._pods)
        token = f',"continue":"{end}"' if end < self._pods else ""
        fitting = request.most_bytes // len(self._rest) + 1
        parts = [f'{{"metadata":{{"resourceVersion":"1"{token}}},"items":['.encode()]
        for number in range(start, min(end, start + fitting)):
            parts += [b"," * (number > start), self.head(number), self._rest]
        return ApiResponse(status=200, reason="OK", headers={}, body=b"".join([*parts, b"]}"]))

    def open(self, request: ApiRequest) -> "Events":
        return Events(self)

    def written(self) -> Iterator[bytes]:
        for number in range(2 * EVENTS):
            yield b'{"type":"ADDED","object":' + self.head(number)
            yield from (self._rest[at : at + PIECE_BYTES] for at in range(0, len(self._rest), PIECE_BYTES))
            yield b"}\n"

    def close(self) -> None:
        pass


class Events:
    def __init__(self, server: LargePods) -> None:
        self._pieces = server.written()

    def read(self, seconds: float) -> bytes:
        piece = next(self._pieces, b"")
        if not piece:
            time.sleep(0.05)
        return piece

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


def followed(kind: str, pods: int) -> None:
    assert {exporter.Settings, watchdog.Settings}, "an agent's modules take memory, too"
    problems = ItemProblems(log=Log("test", sys.stderr))
    with tempfile.NamedTemporaryFile() as token:
        endpoint = Endpoint(host="", port=0, token_file=Path(token.name), ca_file=Path())
        api = Api(endpoint, clock=Clock(), transport=LargePods(KINDS[kind], pods))
        listed = read_list(api, PODS, lambda item: node_pod(item, None, problems))
        assert len(listed.items) == pods
        watches, taken = Watches(api, Clock(), [listed.source]), 0
        while taken < EVENTS:
            taken += applied(watches.take(30), problems)
        watches.close()
        time.sleep(0.3)


def applied(events: list[Object], problems: ItemProblems) -> int:
    pods = [event["object"] for event in events if event["type"] != "BOOKMARK"]
    for pod in pods:
        node_pod(pod, None, problems)
        time.sleep(0.005)
    return len(pods)


if __name__ == "__main__":
    began = time.monotonic()
    followed(sys.argv[1], int(sys.argv[2]))
    peak_mib = int(re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[0]) // 1024
    print(json.dumps({"mib": peak_mib, "seconds": round(time.monotonic() - began, 2)}))
