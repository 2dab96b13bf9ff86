"""Stores the states of workspaces in an S3 server."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.workspace import Workspace, workspace
from toolchain.cluster.api import wait_until
from toolchain.cluster.paths import missing, program
from toolchain.cluster.process import accepts_connections, free_ports

_BUCKET = "states"
_START_SECONDS = 120


@contextmanager
def bucket() -> Iterator[Callable[[Path], Workspace]]:
    """Yields a function that creates a workspace in a folder, as on another machine. All of these workspaces have one
    bucket for their state.
    """
    if missing(("gofakes3",)):
        pytest.skip("gofakes3 is not installed: a state in S3 is NOT tested (make e2e installs it)")
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    command = (program("gofakes3"), "-backend=memory", f"-host={address}", f"-initialbucket={_BUCKET}", "-quiet")
    with subprocess.Popen(command) as server:
        try:
            wait_until(lambda: accepts_connections(port), _START_SECONDS, "the S3 server accepts connections")
            yield lambda folder: _in_bucket(folder, address)
        finally:
            server.terminate()


def _in_bucket(folder: Path, address: str) -> Workspace:
    folder.mkdir()
    made = workspace(folder)
    options = f"endpoint=http://{address}&s3ForcePathStyle=true&region=us-east-1"
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    return replace(made, env={**made.env, **keys, "PULUMI_BACKEND_URL": f"s3://{_BUCKET}?{options}"})
