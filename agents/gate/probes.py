"""Demand probes: whether an on-demand tenant has work. A probe that fails means neither yes nor no."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from agents.runtime.errors import AgentError
from agents.runtime.http_client import fetch
from tenancy.decode import DecodeError, decode

_WINDOW = re.compile(r"(\d\d:\d\d)-(\d\d:\d\d)")


class ProbeError(AgentError):
    """The probe gave no number; nothing changes on it."""


@dataclass(frozen=True)
class ProbeResult:
    """Whether there is work, and what said so."""

    wanted: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class HttpJson:
    """The number at `field` (a.b.c) of the JSON object at `url`."""

    url: str
    field: str
    at_least: int = 1

    def __post_init__(self) -> None:
        _require_http(self.url)

    def answer(self, now: datetime, get: Callable[[str], bytes]) -> ProbeResult:
        """Raises ProbeError and fetch.FetchError."""
        value: Any = _json(self.url, get(self.url))
        for part in self.field.split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise ProbeError(f"{self.url}: the answer has no {self.field}")
            value = value[part]
        return _compared(self.field, value, self.at_least)


@dataclass(frozen=True, kw_only=True)
class PrometheusQuery:
    """The single value of an instant query; no value at all is a failed probe: let the query end in `or vector(0)`."""

    address: str
    query: str
    at_least: int = 1

    def __post_init__(self) -> None:
        _require_http(self.address)

    def answer(self, now: datetime, get: Callable[[str], bytes]) -> ProbeResult:
        """Raises ProbeError and fetch.FetchError."""
        url = f"{self.address.rstrip('/')}/api/v1/query?{urlencode({'query': self.query})}"
        data = _json(url, get(url)).get("data")
        try:
            return _compared(self.query, float(_single(data)[1]), self.at_least)
        except (TypeError, ValueError, LookupError):
            raise ProbeError(f"{self.query}: not one value; end the query in `or vector(0)`: {data!r}") from None


@dataclass(frozen=True, kw_only=True)
class Window:
    """Always within a window of the day, which may cross midnight: from the first minute up to the last, exclusive."""

    between: str
    time_zone: str = "Etc/UTC"

    def __post_init__(self) -> None:
        if not _WINDOW.fullmatch(self.between):
            raise ValueError(f"between: must be two times of the day such as 02:00-06:00 (got {self.between!r})")
        begin, end = self._times()
        if begin == end:
            raise ValueError(f"between: must be two different times (got {self.between!r})")
        self._zone()

    def answer(self, now: datetime, get: Callable[[str], bytes]) -> ProbeResult:
        begin, end = self._times()
        clock = now.astimezone(self._zone()).time()
        inside = begin <= clock < end if begin <= end else clock >= begin or clock < end
        return ProbeResult(inside, f"it is {clock:%H:%M} in {self.time_zone}, the window is {self.between}")

    def _times(self) -> tuple[time, time]:
        begin, end = self.between.split("-")
        return time.fromisoformat(begin), time.fromisoformat(end)

    def _zone(self) -> ZoneInfo:
        try:
            return ZoneInfo(self.time_zone)
        except (LookupError, ValueError, OSError):
            raise ValueError(f"time_zone: {self.time_zone!r} is not known to the agent's image") from None


@dataclass(frozen=True)
class FreeMemory:
    """No signal: there is always demand, and free memory alone decides."""

    def answer(self, now: datetime, get: Callable[[str], bytes]) -> ProbeResult:
        return ProbeResult(True, "it has no demand signal")


Demand = HttpJson | PrometheusQuery | Window | FreeMemory

_KINDS: Mapping[str, type[HttpJson] | type[PrometheusQuery] | type[Window] | type[FreeMemory]] = {
    "http_json": HttpJson,
    "prometheus": PrometheusQuery,
    "window": Window,
    "free_memory": FreeMemory,
}


def parse(shape: Mapping[str, object], path: str) -> Demand:
    """The demand that {kind, ...} describes. Raises DecodeError."""
    kind = _KINDS.get(str(shape.get("kind")))
    if kind is None:
        raise DecodeError([f"{path}.kind: must be one of {', '.join(_KINDS)} (got {shape.get('kind')!r})"])
    return decode(kind, {key: value for key, value in shape.items() if key != "kind"}, path)


def ask(demand: Demand, now: datetime, get: Callable[[str], bytes] = fetch) -> ProbeResult:
    """Whether there is work. Raises ProbeError and fetch.FetchError."""
    return demand.answer(now, get)


def _require_http(url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"must be an http or https URL (got {url!r})")


def _json(url: str, body: bytes) -> Mapping[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, Mapping):
        raise ProbeError(f"{url}: the answer is not a JSON object")
    return answer


def _single(data: Any) -> Any:
    """The [time, value] of a scalar or of a vector of one. Raises TypeError, ValueError and LookupError."""
    if data["resultType"] == "scalar":
        return data["result"]
    (series,) = data["result"]
    return series["value"]


def _compared(name: str, value: object, at_least: int) -> ProbeResult:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ProbeError(f"{name}: no number: {value!r}")
    return ProbeResult(value >= at_least, f"{name} is {value:g}, {at_least} asks for it")
