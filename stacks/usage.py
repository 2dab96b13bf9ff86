"""A history of memory use, from Prometheus or from a file."""

import csv
import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tenancy.memory_history import MINUTE, Sample
from tenancy.memory_pool import MemoryPool, Workload

DAY = 86_400
TIMEOUT_SECONDS = 60
_MOST_POINTS = 11_000  # of one series in one answer, web/api/v1/api.go
_COLUMNS = ("time", "workload", "mib")


class UsageError(Exception):
    """The history cannot be had; the message says why."""


def read(source: str, pool: MemoryPool, *, days: int) -> list[Sample]:
    """What the pool's workloads held, from a Prometheus (an http(s) URL) or from a CSV file. Raises UsageError."""
    if source.startswith(("http://", "https://")):
        return [sample for workload in pool.workloads for sample in _from_prometheus(source, workload, days)]
    return list(_from_file(Path(source)))


def query(workload: Workload) -> str:
    """PromQL: what the pods of a workload hold together, in MiB; pods are named after their workload."""
    chosen = f'namespace="{workload.tenant}",pod=~"{workload.name}(-.*)?",container!=""'
    return f"sum(container_memory_working_set_bytes{{{chosen}}}) / 1048576"


def _from_prometheus(address: str, workload: Workload, days: int) -> Iterator[Sample]:
    end = time.time()
    step = max(MINUTE, math.ceil(days * DAY / _MOST_POINTS / MINUTE) * MINUTE)
    asked = {"query": query(workload), "start": end - days * DAY, "end": end, "step": step}
    url = f"{address.rstrip('/')}/api/v1/query_range?{urllib.parse.urlencode(asked)}"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 (read() took http alone)
            answer: Any = json.load(response)
        series = answer["data"]["result"]
        values = series[0]["values"] if series else ()
        for at, mib in values:
            yield Sample(float(at), workload.name, float(mib))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{address} does not tell what {workload.name} held: {error}") from None


def _from_file(path: Path) -> Iterator[Sample]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            if set(_COLUMNS) - set(rows.fieldnames or ()):
                raise UsageError(f"{path}: the columns must be {', '.join(_COLUMNS)} (got {rows.fieldnames})")
            for row in rows:
                yield _sample(path, rows.line_num, row)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _sample(path: Path, line: int, row: dict[str, str]) -> Sample:
    try:
        sample = Sample(float(row["time"]), row["workload"], float(row["mib"]))
    except (TypeError, ValueError):
        raise UsageError(f"{path}:{line}: time and mib must be numbers") from None
    if not (math.isfinite(sample.time) and math.isfinite(sample.mib)):
        raise UsageError(f"{path}:{line}: time and mib must be finite")
    return sample
