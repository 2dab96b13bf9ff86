"""A history of memory use, from Prometheus or from a file."""

import csv
import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tenancy.host_memory.history import MINUTE, UsageSample
from tenancy.host_memory.pool import HostMemoryPool, Workload
from tenancy.units import MIB

DAY = 86_400
TIMEOUT_SECONDS = 60
_MOST_POINTS = 11_000  # of one series in one answer, web/api/v1/api.go
_COLUMNS = ("time", "workload", "mib")


class UsageError(Exception):
    """The history cannot be had; the message says why."""


def read(source: str, pools: Sequence[HostMemoryPool], *, days: int) -> dict[str, list[UsageSample]]:
    """What the pools' workloads held, by the pool's name, from a Prometheus (an http(s) URL) or from a CSV file, which
    is of all pools. Raises UsageError."""
    if source.startswith(("http://", "https://")):
        return {p.name: [sample for w in p.workloads for sample in _from_prometheus(source, w, days)] for p in pools}
    samples = list(_from_file(Path(source), {workload.name for pool in pools for workload in pool.workloads}))
    return {pool.name: samples for pool in pools}


def query(workload: Workload) -> str:
    """PromQL: what the pods of a workload hold together, in MiB; pods are named after their workload."""
    chosen = f'namespace="{workload.tenant}",pod=~"{workload.name}(-.*)?",container!=""'
    return f"sum(container_memory_working_set_bytes{{{chosen}}}) / {MIB}"


def _from_prometheus(address: str, workload: Workload, days: int) -> Iterator[UsageSample]:
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
            yield UsageSample(float(at), workload.name, float(mib))
    except urllib.error.HTTPError as error:
        raise _untold(address, workload, f"{error}: {_reason(error)}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _untold(address, workload, error) from None


def _untold(address: str, workload: Workload, error: object) -> UsageError:
    return UsageError(f"{address} does not tell what {workload.name} held: {error}")


def _reason(error: urllib.error.HTTPError) -> str:
    """What Prometheus says of a request that it refuses; for any other server the beginning of its answer."""
    body = error.read(1000).decode(errors="replace")
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body.partition("\n")[0]


def _from_file(path: Path, workloads: Collection[str]) -> Iterator[UsageSample]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            if set(_COLUMNS) - set(rows.fieldnames or ()):
                raise UsageError(f"{path}: the columns must be {', '.join(_COLUMNS)} (got {rows.fieldnames})")
            for row in rows:
                yield _sample(f"{path}:{rows.line_num}", row, workloads)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is no CSV file in UTF-8: {error}") from None


def _sample(where: str, row: Mapping[str, str | None], workloads: Collection[str]) -> UsageSample:
    workload = row["workload"] or ""
    if workload not in workloads:
        known = ", ".join(sorted(workloads))
        raise UsageError(f"{where}: workload {workload!r} is in no memory pool; known there: {known}")
    return UsageSample(_number(where, row, "time"), workload, _number(where, row, "mib"))


def _number(where: str, row: Mapping[str, str | None], key: str) -> float:
    try:
        number = float(row[key] or "")
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise UsageError(f"{where}: {key} must be a number from 0 (got {row[key]!r})")
    return number
