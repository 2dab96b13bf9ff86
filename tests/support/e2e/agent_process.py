"""Runs an agent as a process of this machine, with the token of its account."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.base.identity import Account
from components.base.zipapp import Zipapp
from tenancy import names
from tests.support.e2e.server import ApiServer

ENDS_SECONDS = 120


def mounted(server: ApiServer, account: Account, code: Zipapp, folder: Path) -> Path:
    """Writes the files that the agent's container would have: the code, the token and the authority."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": {}}
    path = f"/api/v1/namespaces/{account.namespace}/serviceaccounts/{account.name}/token"
    (folder / names.AGENTS_KEY).write_bytes(code.content)
    (folder / "token").write_text(server.api.create(path, request)["status"]["token"])
    (folder / "ca.crt").symlink_to(server.api.kubeconfig.parent / "pki" / "ca.crt")
    return folder


def start(mount: Path, program: str, port: int, environment: Mapping[str, str]) -> "subprocess.Popen[str]":
    given = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(port),
        "SERVICE_ACCOUNT_DIRECTORY": str(mount),
        "POD_NAME": f"{program}-1",
        **environment,
    }
    command = [sys.executable, "-I", str(mount / names.AGENTS_KEY), program]
    return subprocess.Popen(command, env=given, stdout=subprocess.PIPE, text=True)


def end(agent: "subprocess.Popen[str]") -> tuple[int, list[dict[str, Any]]]:
    try:
        said, _ = agent.communicate(timeout=ENDS_SECONDS)
    finally:
        agent.kill()
    return agent.returncode, [json.loads(line) for line in said.splitlines()]


def stop(agent: "subprocess.Popen[str]") -> None:
    agent.send_signal(signal.SIGTERM)
    code, log = end(agent)
    assert code == 143
    assert log[-1]["message"].startswith("stopped by SIGTERM")  # On a busy machine, a request may still be in progress.
