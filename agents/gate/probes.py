"""The kinds of probes. A probe finds out whether an on-demand workload has demand."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, time
from reprlib import repr as shortened
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
        value: Any = _json(self.url, get(self.url))
        for part in self.field.split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise ProbeError(f"{self.url}: the answer has no {self.field}")
            value = value[part]
        return _compared(self.field, value)


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
        data = _json(url, get(url)).get("data")
        try:
            return _compared(self.query, float(_single(data)[1]))
        except (TypeError, ValueError, LookupError):
            shown = shortened(data)
            raise ProbeError(f"{self.query}: not one value; end the query in `or vector(0)`: {shown}") from None


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


def _json(url: str, body: bytes) -> Mapping[str, Any]:
    if len(body) > ANSWER_BYTES:
        raise ProbeError(f"{url}: the answer is over {ANSWER_BYTES} bytes")
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, Mapping):
        raise ProbeError(f"{url}: the answer is not a JSON object")
    return answer


def _single(data: Any) -> Any:
    """Returns the pair [time, value] of a scalar, or of a vector with one element.

    Raises TypeError, ValueError and LookupError.
    """
    if data["resultType"] == "scalar":
        return data["result"]
    (series,) = data["result"]
    return series["value"]


def _compared(name: str, value: object) -> ProbeResult:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST <= value <= _LARGEST:
        raise ProbeError(f"{name}: not a number: {shortened(value)}")
    return ProbeResult(value >= 1, f"{name} is {value:g}, 1 asks for it")
