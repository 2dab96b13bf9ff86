"""Runs the board from its shipped zipapp against an API server over real TLS, with a real exporter's page."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from agents.kube.client import ApiError
from agents.runtime.http_message import HttpRequest, HttpResponse
from agents.runtime.http_server import Server
from components.agents.board import Board, BoardArgs, BoardSpec, IngressSpec
from components.base import zipapp
from tenancy.frameworks import FrameworkName
from tests.support.api_server import served_over_tls
from tests.support.board import sample
from tests.support.fake_cluster import SYSTEM, FakeCluster
from tests.support.given import CLUSTER, CODE, declared
from tests.support.http_get import get
from tests.support.kubectl import EXPORTERS, FakeApi
from tests.support.rights import call, granted
from tests.support.waiting import PATIENCE_SECONDS, eventually
from toolchain.cluster.process import free_ports

SPEC = BoardSpec(ingress=IngressSpec(namespace="ingress-nginx", pod_labels={"app": "proxy"}))
ARGS = BoardArgs(spec=SPEC, cluster=CLUSTER, code=CODE, frameworks=[FrameworkName.JOB])
HELD = granted(declared(Board, "board", ARGS))
POD = "llama-swap-5469957f7f-thbxn"


class Answers(FakeCluster):
    """A fake API server that answers with the objects of a FakeApi."""

    api: FakeApi

    def answer(self, method: str, url: str, body: Any) -> tuple[int, dict[str, Any], Mapping[str, str]]:
        self.requests.append((method, url))
        split = urlsplit(url)
        query = {key: values[0] for key, values in parse_qs(split.query).items() if key not in ("limit", "continue")}
        try:
            if split.path in self.api.objects:
                return 200, dict(self.api.get(split.path)), {}
            return 200, {"items": [*self.api.items(split.path, **query)], "metadata": {}}, {}
        except ApiError as error:
            return error.status or 500, {"reason": error.reason, "message": error.message}, {}


@contextmanager
def measured(found: FakeApi) -> Iterator[None]:
    """Serves the page of the sample's exporter on loopback, at the address in the status of the exporter's pod."""
    (exporter,) = found.lists[f"/api/v1/namespaces/{EXPORTERS}/pods"]
    (content,) = found.texts.values()

    def answer(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, content)

    with Server("127.0.0.1", 0, answer) as server:
        threading.Thread(target=lambda: server.serve_forever(0.02), daemon=True).start()
        exporter["status"]["podIP"] = "127.0.0.1"
        exporter["spec"]["containers"][0]["ports"][0]["containerPort"] = server.server_address[1]
        yield
        server.shutdown()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("board") / "agents.pyz"
    made.write_bytes(zipapp.build_for_board().content)
    return made


@contextmanager
def started(archive: Path, environ: Mapping[str, str]) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-I", str(archive), "board"]
    with subprocess.Popen(command, env=dict(environ), cwd="/", stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def until_it_serves(url: str, process: "subprocess.Popen[str]") -> None:
    eventually(lambda: process.poll() is not None or get(f"{url}/healthz") == (200, "ok\n"))
    if process.poll() is not None:
        raise AssertionError(process.communicate()[1])


@pytest.mark.parametrize("named", [False, True], ids=["sums", "names"])
def test_the_board_of_a_pod_shows_names_only_where_the_operator_allows_it(
    archive: Path, certificates: Path, tmp_path: Path, named: bool
) -> None:
    cluster, (port,) = Answers(), free_ports(1)
    cluster.api = sample()
    settings = {"LEDGER_NAMESPACE": SYSTEM, "PORT": str(port), "SHOW_PODS": json.dumps(named)}
    with measured(cluster.api), served_over_tls(cluster, certificates, tmp_path / "account") as served:
        url = f"http://127.0.0.1:{port}"
        with started(archive, {**os.environ, **served.environ(), **settings}) as process:
            until_it_serves(url, process)
            status, page = get(f"{url}/gpus/")
            refused = get(url, "POST")[0]
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_SECONDS)
    assert (status, refused) == (200, 405)
    assert "measured: 14160 used, 1200 free, under the floor of 1536" in page
    assert "13800 of 14000 MiB held" in page
    assert re.search(r"<td[^>]*>vision</td><td[^>]*>research</td><td[^>]*>l4</td>", page)
    assert "running pods hold the memory" in page
    assert (POD in page, "caption" in page.partition("<body>")[2]) == (named, named)
    made = {call(method, url) for method, url in cluster.requests}
    assert {each for each in made if not any(right.covers(each) for right in HELD)} == set(), "no right for these calls"
    assert {right for right in HELD if not any(right.covers(each) for each in made)} == set(), (
        "rights that nothing uses"
    )
