"""Reads series from the HTTP API of Prometheus."""

import http.client
import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agents.runtime.errors import AgentError

TIMEOUT_SECONDS = 60
MOST_POINTS = 11_000  # The maximum number of values of one series in one response (web/api/v1/api.go).
SCHEMES = ("http://", "https://")
LAST_SECONDS = 253_402_300_799  # The end of the year 9999 is the latest time of a Python datetime.


class HistoryError(AgentError):
    """Raised if the history cannot be read."""


@dataclass(frozen=True)
class Series:
    """A series of Prometheus, with its labels. Each value has its time in seconds since 1970."""

    labels: Mapping[str, str]
    values: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Prometheus:
    """A client for the Prometheus at an http(s) URL. Every method of the client can raise HistoryError."""

    address: str

    def at(self, query: str, time: float) -> list[Series]:
        """Returns the series that are the result of a query at one time."""
        return self._ask("query", {"query": query, "time": f"{time:.3f}"}, lambda series: [series["value"]])

    def over(self, query: str, start: float, end: float, step: float) -> Iterator[Series]:
        """Yields the series of a query over a span of time, in steps of `step` seconds.

        A long span of time needs several requests, so a series can have several parts.
        """
        span = step * (MOST_POINTS - 1)
        for part in range(max(math.ceil((end - start + step) / (span + step)), 1)):
            first = start + part * (span + step)
            asked = {
                "query": query,
                "start": f"{first:.3f}",
                "end": f"{min(first + span, end):.3f}",
                "step": f"{step:g}",
            }
            yield from self._ask("query_range", asked, lambda series: series["values"])

    def _ask(self, verb: str, asked: Mapping[str, str], values: Callable[[Any], Any]) -> list[Series]:
        url = f"{self.address.rstrip('/')}/api/v1/{verb}?{urllib.parse.urlencode(asked)}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 (SCHEMES alone)
                answer: Any = json.load(response)
            if answer["status"] != "success":
                raise ValueError(answer["error"])
            if warnings := answer.get("warnings"):  # a federation reports warnings if one of its members is missing
                raise ValueError(f"the answer may lack parts: {'; '.join(map(str, warnings))}")
            return [Series(_labels(series), _values(values(series))) for series in answer["data"]["result"]]
        except urllib.error.HTTPError as error:
            raise self._error(f"{error}: {_reason(error)}") from None
        except (AttributeError, KeyError, TypeError):
            raise self._error("the answer has not the form of Prometheus'") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._error(error) from None

    def _error(self, error: object) -> HistoryError:
        return HistoryError(f"{self.address}: {error}")


def _labels(series: Any) -> Mapping[str, str]:
    return {str(name): str(value) for name, value in series.get("metric", {}).items()}


def _values(values: Any) -> tuple[tuple[float, float], ...]:
    """Returns the values of a series with their times. The function raises ValueError and TypeError."""
    found = tuple((float(time), float(value)) for time, value in values)
    for time, value in found:
        if not 0 <= time <= LAST_SECONDS:
            raise ValueError(f"{time:g} is no time in seconds since 1970")
        if not 0 <= value < math.inf:
            raise ValueError(f"{value:g} is no amount that can be measured")
    return found


def _reason(error: urllib.error.HTTPError) -> str:
    """Returns Prometheus' message about a refused request.

    If another server sent the response, returns the first line of the response's body.
    """
    body = error.read(1000).decode(errors="replace")
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body.partition("\n")[0]
