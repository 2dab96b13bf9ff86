"""The toolchain's own etcd and kube-apiserver on loopback: the best judge of a manifest, the only one of a policy."""

import json
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BIN = Path(__file__).resolve().parents[2] / ".toolchain" / "bin"
ADMIN, SCHEDULER = "admin", "system:kube-scheduler"
START_SECONDS = 60
_TOKENS = f'{ADMIN},{ADMIN},1,"system:masters"\n{SCHEDULER},{SCHEDULER},2\n'


@dataclass(frozen=True)
class Answer:
    """What the API server said: the HTTP status and the object, or the Status in its place."""

    code: int
    body: Mapping[str, Any]

    @property
    def refusal(self) -> str | None:
        """Why the request was refused; None where it was not."""
        return None if self.code < 300 else str(self.body["message"])


@dataclass(frozen=True)
class ApiServer:
    """A running API server; a user's token is the user's name."""

    port: int
    certificate: Path

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: str = ADMIN,
        content_type: str = "application/json",
    ) -> Answer:
        """One request. Raises OSError when the server cannot be reached."""
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {user}", "Content-Type": content_type},
        )
        context = ssl.create_default_context(cafile=self.certificate)
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:  # noqa: S310 (https)
                return Answer(answer.status, json.loads(answer.read() or b"{}"))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, json.loads(error.read()))

    def apply(self, manifest: Mapping[str, Any], plural: str) -> None:
        """Creates an object under strict field validation. Raises AssertionError with the refusal."""
        group = "/api/v1" if manifest["apiVersion"] == "v1" else f"/apis/{manifest['apiVersion']}"
        answer = self.request("POST", f"{group}/{plural}?fieldValidation=Strict", dict(manifest))
        assert answer.refusal is None, answer.refusal


def missing_tools() -> list[str]:
    """What the cluster toolchain has not installed, of what is needed here."""
    return [tool for tool in ("etcd", "kube-apiserver") if not (BIN / tool).exists()]


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """Starts both and waits until the API server is ready; stops them in reverse, as an apiserver needs its etcd."""
    client_port, peer_port, secure_port = _free_ports(3)
    with ExitStack() as running:
        clients = f"http://127.0.0.1:{client_port}"
        running.enter_context(
            _process(
                folder,
                "etcd",
                "--unsafe-no-fsync",
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls={clients}",
                f"--advertise-client-urls={clients}",
                f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
            )
        )
        running.enter_context(_process(folder, "kube-apiserver", *_api_server_flags(folder, clients, secure_port)))
        server = ApiServer(secure_port, folder / "apiserver.crt")
        _wait_until_ready(server, folder)
        yield server


def _api_server_flags(folder: Path, etcd: str, port: int) -> list[str]:
    openssl = shutil.which("openssl")
    assert openssl is not None, "openssl makes the key that signs service accounts"
    key, tokens = folder / "service-accounts.key", folder / "tokens.csv"
    subprocess.run([openssl, "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    tokens.write_text(_TOKENS)
    return [
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        "--endpoint-reconciler-type=none",
        f"--cert-dir={folder}",
        "--authorization-mode=Node,RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        f"--token-auth-file={tokens}",
        "--disable-admission-plugins=ServiceAccount",  # no controller makes the accounts that it would ask for
    ]


def _wait_until_ready(server: ApiServer, folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            if server.certificate.exists() and server.request("GET", "/apis").code == 200:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError((folder / "kube-apiserver.log").read_text()[-2000:])


@contextmanager
def _process(folder: Path, tool: str, *flags: str) -> Iterator[None]:
    with (
        (folder / f"{tool}.log").open("wb") as log,
        subprocess.Popen([BIN / tool, *flags], stdout=log, stderr=log) as run,
    ):
        try:
            yield
        finally:
            run.terminate()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [s.getsockname()[1] for s in sockets]
