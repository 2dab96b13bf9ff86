"""Runs a fake webhook of a service mesh. The webhook adds sidecars to new pods after our policies have changed them."""

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from tests.support.e2e.server import ApiServer
from toolchain.cluster import certificates

LABEL = "mesh.example.com/inject"
_IMAGE = {"image": "proxy", "resources": {}}
SIDECAR = {"name": "proxy", **_IMAGE, "env": [{"name": "POD", "value": "it"}]}
BARE = {"name": "bare-proxy", **_IMAGE}
NATIVE = {"name": "native-proxy", **_IMAGE, "restartPolicy": "Always"}


class _Injection(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        patch = base64.b64encode(json.dumps(_patch(review["request"]["object"]["spec"])).encode()).decode()
        response = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
        body = json.dumps({**review, "request": None, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


def _patch(spec: dict[str, Any]) -> list[dict[str, Any]]:
    initial = [NATIVE, *spec.get("initContainers", [])]
    return [
        {"op": "add", "path": "/spec/initContainers", "value": initial},
        {"op": "add", "path": "/spec/containers/0", "value": SIDECAR},
        {"op": "add", "path": "/spec/containers/-", "value": BARE},
    ]


@contextmanager
def mesh(server: ApiServer, folder: Path) -> Iterator[None]:
    pki = folder / "pki"
    certificates.make_authority(pki)
    certificates.issue(pki, "webhook", user="webhook", hosts=("127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "webhook.crt", pki / "webhook.key")
    with HTTPServer(("127.0.0.1", 0), _Injection) as listening:
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        collection = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        server.create(collection, _configuration(pki, listening.server_port))
        try:
            yield
        finally:
            server.request("DELETE", f"{collection}/mesh")
            listening.shutdown()
            thread.join()


def _configuration(pki: Path, port: int) -> dict[str, Any]:
    webhook = {
        "name": "inject.mesh.example.com",
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/",
            "caBundle": base64.b64encode((pki / "ca.crt").read_bytes()).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {LABEL: "true"}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "mesh"},
        "webhooks": [webhook],
    }
