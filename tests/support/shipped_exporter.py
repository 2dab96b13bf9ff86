"""Runs the exporter as a process that connects to a fake cluster over TLS."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.api_server import ServedOverTls
from tests.support.fake_cluster import SYSTEM
from toolchain.cluster.fake_nvml import FakeNvml
from toolchain.cluster.process import free_ports


@dataclass(frozen=True)
class Shipped:
    process: "subprocess.Popen[str]"
    port: int


@contextmanager
def shipped_exporter(served: ServedOverTls, zipapp: Path, nvml: FakeNvml) -> Iterator[Shipped]:
    (port,) = free_ports(1)
    environ = {
        "PORT": str(port),
        "INTERVAL_SECONDS": "1",
        "NODE_NAME": "k8s-node1",
        "LEDGER_NAMESPACE": SYSTEM,
        "PUBLISH_DEVICES": "true",
        **served.environ(),
        **nvml.environ,
    }
    with subprocess.Popen(
        [sys.executable, "-I", str(zipapp), "exporter"], env=environ, stdout=subprocess.PIPE, text=True
    ) as started:
        try:
            yield Shipped(started, port)
        finally:
            started.kill()
