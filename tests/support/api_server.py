"""Serves a FakeCluster over HTTPS on loopback, with a certificate of the tests' own CA."""

import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from agents.kube.client import Endpoint
from agents.kube.transport import Https, Transport
from tests.support.fake_cluster import TOKEN, FakeCluster, Served


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    cluster: FakeCluster

    def handle_request(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        body = json.loads(self.rfile.read(length)) if length else None
        self.cluster.tokens.append(self.headers["Authorization"].removeprefix("Bearer "))
        self.cluster.agents.append(self.headers["User-Agent"])
        code, answer, headers = self.cluster.answer(self.command, self.path, body)
        if code == 200 and "watch" in parse_qs(urlsplit(self.path).query):
            self.stream()
            return
        content = json.dumps(answer).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        split = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(split.query).items()}
        for event in self.cluster.events_after(split.path, query):
            self.chunk(json.dumps(event).encode() + b"\n")
        self.chunk(b"")

    def chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(content), content))
        self.wfile.flush()

    def date_time_string(self, timestamp: float | None = None) -> str:
        return format_datetime(self.cluster.time_of_day(), usegmt=True)

    do_GET = do_POST = do_PATCH = do_DELETE = handle_request  # noqa: N815 (names that http.server calls)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass


def make_certificates(folder: Path) -> None:
    for name in ("ca", "stranger"):
        openssl(
            folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-keyout", f"{name}.key", "-out", f"{name}.crt", "-subj", f"/CN={name}",
        )  # fmt: skip
    openssl(
        folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
        "-CA", "ca.crt", "-CAkey", "ca.key", "-keyout", "server.key", "-out", "server.crt", "-subj", "/CN=apiserver",
        "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
    )  # fmt: skip


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["/usr/bin/env", "openssl", *arguments], cwd=folder, check=True, capture_output=True)


@dataclass(kw_only=True)
class ServedOverTls(Served):
    port: int

    def endpoint(self) -> Endpoint:
        return Endpoint(
            host="127.0.0.1", port=self.port, token_file=self.mount / "token", ca_file=self.mount / "ca.crt"
        )

    def transport(self) -> Transport:
        return Https(self.endpoint())

    def environ(self) -> dict[str, str]:
        return {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.port),
            "SERVICE_ACCOUNT_DIRECTORY": str(self.mount),
        }


@contextmanager
def served_over_tls(cluster: FakeCluster, certificates: Path, mount: Path) -> Iterator[ServedOverTls]:
    mount.mkdir(exist_ok=True)
    if mount != certificates:
        shutil.copy(certificates / "ca.crt", mount / "ca.crt")
    (mount / "token").write_text(f"{TOKEN}\n")
    server, thread = serve(cluster, certificates)
    served = ServedOverTls(cluster=cluster, mount=mount, port=server.server_address[1])
    yield served
    served.close()
    server.shutdown()
    thread.join()
    server.server_close()


def serve(cluster: FakeCluster, certificates: Path) -> tuple[QuietServer, threading.Thread]:
    handler = type("BoundHandler", (Handler,), {"cluster": cluster})
    server = QuietServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    return server, thread
