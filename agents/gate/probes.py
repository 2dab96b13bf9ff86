"""The kinds of probes. A probe finds out whether an on-demand workload has demand."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, time
from functools import reduce
from operator import getitem
from typing import Any, ClassVar
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from agents.runtime.errors import AgentError
from agents.runtime.http_client import fetch

# The maximum size in bytes of a tenant's response to a probe. The parsed response takes up to 25 times as much host
# memory.
ANSWER_BYTES = 64 * 2**10
_LARGEST = sys.float_info.max  # a larger integer cannot be converted to a float


class ProbeError(AgentError):
    """The probe failed. After a failed probe, the gate keeps the workload as it is."""


def fetch_answer(url: str) -> bytes:
    """Returns the body of the response at a probe's URL. Raises FetchError."""
    return fetch(url, ANSWER_BYTES)


@dataclass(frozen=True)
class ProbeResult:
    """A probe's result. `wanted` is True if the workload has demand. `why` contains the value that the probe
    has read.
    """

    wanted: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class HttpJson:
    """A probe that reads a number from the JSON object at `url`. `field` is the path of the number, such as a.b.c."""

    kind: ClassVar = "http_json"
    url: str
    field: str

    def answer(self, now: datetime, get: Callable[[str], bytes]) -> ProbeResult:
        """Reads the number. The workload has demand if the number is at least 1. Raises ProbeError and FetchError."""
        problem = f"{self.url}: the answer has no number at {self.field}"
        return _compared(self.field, lambda: reduce(getitem, self.field.split("."), json.loads(get(self.url))), problem)


@dataclass(frozen=True, kw_only=True)
class PrometheusQuery:
    """A probe that reads the value of an instant query in Prometheus. The probe fails if the query has no result.
    Append `or vector(0)` to the query to prevent this failure.
    """

    kind: ClassVar = "prometheus"
    address: str
    query: str

    def answer(self, now: datetime, get: Callable[[str], bytes]) -> ProbeResult:
        """Runs the query. The workload has demand if the value is at least 1. Raises ProbeError and FetchError."""
        url = f"{self.address.rstrip('/')}/api/v1/query?{urlencode({'query': self.query})}"
        problem = f"{self.query}: not one value; end the query in `or vector(0)`"
        return _compared(self.query, lambda: _single(json.loads(get(url))["data"]), problem)


@dataclass(frozen=True, kw_only=True)
class Window:
    """A probe that has demand in a part of each day, such as 22:00-06:00."""

    kind: ClassVar = "window"
    between: str
    time_zone: str

    def answer(self, now: datetime, get: Callable[[str], bytes]) -> ProbeResult:
        """Compares the time of day with the window. Raises ProbeError."""
        begin, end = map(time.fromisoformat, self.between.split("-"))
        try:
            zone = ZoneInfo(self.time_zone)
        except (LookupError, ValueError, OSError):
            raise ProbeError(f"the agent's image does not know the time zone {self.time_zone!r}") from None
        clock = now.astimezone(zone).time()
        inside = begin <= clock < end if begin <= end else clock >= begin or clock < end
        return ProbeResult(inside, f"it is {clock:%H:%M} in {self.time_zone}, the window is {self.between}")


@dataclass(frozen=True)
class FreeMemory:
    """A probe that always has demand. With the probe FreeMemory, the gate scales the workload only by the
    free memory.
    """

    kind: ClassVar = "free_memory"

    def answer(self, now: datetime, get: Callable[[str], bytes]) -> ProbeResult:
        return ProbeResult(True, "it has no probe, so there is always demand")


Demand = HttpJson | PrometheusQuery | Window | FreeMemory


def _single(data: Any) -> float:
    """Returns the value of a scalar, or of a vector with one element. Raises TypeError, ValueError and LookupError."""
    if data["resultType"] == "scalar":
        return float(data["result"][1])
    (series,) = data["result"]
    return float(series["value"][1])


def _compared(name: str, read: Callable[[], object], problem: str) -> ProbeResult:
    """Returns the demand by the number that `read` returns. Raises ProbeError, and the FetchError of `read`."""
    try:
        value = read()
    except (LookupError, TypeError, ValueError, RecursionError):
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST <= value <= _LARGEST:
        raise ProbeError(problem)
    return ProbeResult(value >= 1, f"{name} is {value:g}, 1 asks for it")
