"""Stores the states of workspaces in an S3 server."""

import http.client
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from toolchain.cluster.api import wait_until
from toolchain.cluster.paths import missing, program
from toolchain.cluster.process import free_ports
from toolchain.workspace import Workspace, workspace

_BUCKET = "states"
_START_SECONDS = 60


@contextmanager
def bucket() -> Iterator[Callable[[Path], Workspace]]:
    """Yields a function that creates a workspace in a folder, as on another machine. All of these workspaces have one
    bucket for their state.
    """
    if missing(("gofakes3",)):
        pytest.skip("gofakes3 is not installed: a state in S3 is NOT tested (make e2e installs it)")
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = (program("gofakes3"), "-backend=memory", f"-host={address}", f"-initialbucket={_BUCKET}", "-quiet")
    with subprocess.Popen(command) as server:
        try:
            url = f"http://{address}/{_BUCKET}"
            wait_until(lambda: urllib.request.urlopen(url, timeout=10), _START_SECONDS, f"{url} answers")
            yield lambda folder: _in_bucket(folder, address)
        finally:
            server.terminate()


def _answers(url: str) -> bool:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 (http)
        return answer.status == http.client.OK


def _in_bucket(folder: Path, address: str) -> Workspace:
    folder.mkdir()
    made = workspace(folder)
    options = f"endpoint=http://{address}&s3ForcePathStyle=true&region=us-east-1"
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    return replace(made, env={**made.env, **keys, "PULUMI_BACKEND_URL": f"s3://{_BUCKET}?{options}"})
