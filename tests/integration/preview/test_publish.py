"""Tests that `pulumi policy publish` accepts the policy pack and uploads it to a fake service."""

import gzip
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tenancy.names import POLICY, POLICY_PACK
from tests.support.paths import ROOT
from tests.support.workspace import Workspace
from toolchain import pack


class Service(BaseHTTPRequestHandler):
    sent: dict[str, bytes]

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer({"githubLogin": "somebody", "name": "somebody", "organizations": [], "capabilities": []})

    def do_POST(self) -> None:
        self.sent[self.path] = self._body()
        port = self.server.server_address[1]
        self._answer({"version": 1, "uploadURI": f"http://127.0.0.1:{port}/upload"})

    def do_PUT(self) -> None:
        self.sent[self.path] = self._body()
        self._answer({})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def service() -> Iterator[tuple[str, dict[str, bytes]]]:
    sent: dict[str, bytes] = {}
    handler = type("Bound", (Service,), {"sent": sent})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", sent
        server.shutdown()
        thread.join()


def test_pulumi_publishes_it_with_all_that_a_service_shows_of_it(space: Workspace) -> None:
    alone = pack.build(space.folder / "elsewhere")
    (alone / "venv").symlink_to(ROOT / ".venv")
    version = alone.name.rpartition("-")[2]
    with service() as (address, sent):
        outcome = space.pulumi(
            "policy", "publish", "acme", cwd=alone, PULUMI_BACKEND_URL=address, PULUMI_ACCESS_TOKEN="pul-none"
        )
    assert outcome.code == 0, outcome.text
    described = json.loads(unzipped(sent["/api/orgs/acme/policypacks"]))
    (policy,) = described["policies"]
    assert (described["name"], described["versionTag"], policy["name"]) == (POLICY_PACK, version, POLICY)
    assert policy["enforcementLevel"] == "mandatory"
    for shown in ("displayName", "description", "severity", "tags", "remediationSteps", "configSchema"):
        assert policy[shown], shown
    assert f"/api/orgs/acme/policypacks/{POLICY_PACK}/versions/{version}/complete" in sent
    with tarfile.open(fileobj=io.BytesIO(sent["/upload"])) as uploaded:
        names = {Path(name).relative_to("package").parts[0] for name in uploaded.getnames()}
    assert names >= {"PulumiPolicy.yaml", "__main__.py", "requirements.txt", "policy", "tenancy"}
    assert "venv" not in names


def unzipped(body: bytes) -> bytes:
    return gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
