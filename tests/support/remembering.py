"""Runs a real Prometheus with a history that the test chooses."""

import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.http_get import get
from tests.support.waiting import PATIENCE_SECONDS, eventually
from toolchain.cluster.process import free_ports


@contextmanager
def prometheus(folder: Path, history: Iterable[str]) -> Iterator[str]:
    programs = [shutil.which(name) for name in ("promtool", "prometheus")]
    if None in programs:
        pytest.skip("prometheus is not installed: reading from it is NOT tested (make integration installs it)")
    promtool, server = programs
    (folder / "history").write_text("\n".join([*history, "# EOF\n"]))
    long = "--max-block-duration=4374h"  # By default, promtool would read the file once for each block of 2 hours.
    blocks = (promtool, "tsdb", "create-blocks-from", "openmetrics", long, "history", "data")
    subprocess.run(blocks, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (folder / "prometheus.yml").write_text("{}")
    address = f"127.0.0.1:{free_ports(1)[0]}"
    arguments = (
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
    )
    with subprocess.Popen([server, *arguments], cwd=folder) as process:
        try:
            eventually(lambda: get(f"http://{address}/-/ready")[0] == 200)
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)
