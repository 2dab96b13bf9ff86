"""Reads the API server's audit log."""

import json
from collections.abc import Iterator
from typing import Any

from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.control_plane import AUDIT


def entries(cluster: HeldCluster, user: str) -> Iterator[dict[str, Any]]:
    complete, _, _ = cluster.log(AUDIT).read_text().rpartition("\n")
    for line in complete.splitlines():
        if f'"{user}"' in line:
            yield json.loads(line)
