"""What a Prometheus remembers, by its HTTP API."""

import http.client
import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agents.runtime.errors import AgentError

TIMEOUT_SECONDS = 60
MOST_POINTS = 11_000  # of one series in one answer, web/api/v1/api.go
SCHEMES = ("http://", "https://")
LAST_SECONDS = 253_402_300_799  # the end of 9999, the last year that there is here


class HistoryError(AgentError):
    """The history cannot be had; the message says why."""


@dataclass(frozen=True)
class Series:
    """One of an answer: its labels, and its values by seconds since 1970."""

    labels: Mapping[str, str]
    values: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Prometheus:
    """The server at an http(s) URL. Every method raises HistoryError, which names `what` was asked for."""

    address: str

    def at(self, query: str, time: float, what: str) -> list[Series]:
        """What a query is at a moment."""
        found = self._ask("query", {"query": query, "time": f"{time:.3f}"}, "value", what)
        return [Series(labels, _values([value])) for labels, value in found]

    def over(self, query: str, start: float, end: float, step: float, what: str) -> Iterator[Series]:
        """What it was in steps of so many seconds, in as many requests as the server wants; a series of several has
        several parts."""
        span = step * (MOST_POINTS - 1)
        for part in range(max(math.ceil((end - start + step) / (span + step)), 1)):
            first = start + part * (span + step)
            asked = {
                "query": query,
                "start": f"{first:.3f}",
                "end": f"{min(first + span, end):.3f}",
                "step": f"{step:g}",
            }
            for labels, values in self._ask("query_range", asked, "values", what):
                yield Series(labels, _values(values))

    def _ask(self, verb: str, asked: Mapping[str, str], key: str, what: str) -> list[tuple[Mapping[str, str], Any]]:
        url = f"{self.address.rstrip('/')}/api/v1/{verb}?{urllib.parse.urlencode(asked)}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 (SCHEMES alone)
                answer: Any = json.load(response)
            if answer["status"] != "success":
                raise ValueError(answer["error"])
            if said := answer.get("warnings"):  # of what federates others, where one of them is away
                raise ValueError(f"the answer may lack parts: {'; '.join(map(str, said))}")
            found = [(_labels(series), series[key]) for series in answer["data"]["result"]]
            for _, values in found:
                _values([values] if key == "value" else values)
        except urllib.error.HTTPError as error:
            raise self._untold(what, f"{error}: {_reason(error)}") from None
        except KeyError as error:
            raise self._untold(what, f"the answer has no {error}, as Prometheus' have") from None
        except (AttributeError, TypeError, RecursionError):
            raise self._untold(what, "the answer has not the form of Prometheus'") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._untold(what, error) from None
        return found

    def _untold(self, what: str, error: object) -> HistoryError:
        return HistoryError(f"{self.address} does not tell {what}: {error}")


def _labels(series: Any) -> Mapping[str, str]:
    return {str(name): str(value) for name, value in series.get("metric", {}).items()}


def _values(values: Any) -> tuple[tuple[float, float], ...]:
    """Raises ValueError and TypeError."""
    found = tuple((float(time), float(value)) for time, value in values)
    for time, value in found:
        if not 0 <= time <= LAST_SECONDS:
            raise ValueError(f"{time:g} is no time in seconds since 1970")
        if not 0 <= value < math.inf:
            raise ValueError(f"{value:g} is no amount that can be measured")
    return found


def _reason(error: urllib.error.HTTPError) -> str:
    """What Prometheus says of a request that it refuses; for any other server the beginning of its answer."""
    body = error.read(1000).decode(errors="replace")
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body.partition("\n")[0]
