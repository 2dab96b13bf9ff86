"""Reads series from the HTTP API of Prometheus."""

import argparse
import base64
import http.client
import json
import math
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.runtime.errors import AgentError

TIMEOUT_SECONDS = 60
MOST_POINTS = 11_000  # The maximum number of values of one series in one response (web/api/v1/api.go).
SCHEMES = ("http://", "https://")
LAST_SECONDS = 253_402_300_799  # The end of the year 9999 is the latest time of a Python datetime.
# DCGM writes one of these where a driver has no value (dcgm_structs.h). A larger value than any of a GPU is blank too.
_BLANK = {0x7FFFFFF0, 0xFFFFFFFF, 1 << 47}
_MOST = 1 << 62
# In a store for several clusters, one of these labels names the cluster.
_CLUSTER_LABELS = ("cluster", "cluster_id", "cluster_name", "k8s_cluster", "k8s_cluster_name", "kubernetes_cluster")
# If the scrape sets a label that a series already has, Prometheus renames the label of the series.
_RENAMED = ("exported_namespace", "exported_pod")
# A string, or a metric: a name before a selector or a range, or a recorded name.
_METRIC = re.compile(r'"(?:[^"\\]|\\.)*"|\b([A-Za-z_][\w:]*)(\{|(?=\[))|\b([A-Za-z_]\w*:[\w:]+)')


class HistoryError(AgentError):
    """Raised if the history cannot be read."""


@dataclass(frozen=True)
class Series:
    """A series of Prometheus, with its labels. Each value has its time in seconds since 1970."""

    labels: Mapping[str, str]
    values: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Access:
    """How to reach a Prometheus: its headers, the file of its CA, and the matchers of each query, such as
    cluster="prod"."""

    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    ca_file: Path | None = None
    matchers: tuple[str, ...] = ()


OPEN = Access()


def access(given: argparse.Namespace) -> Access:
    """Returns the access that the flags of the command name. Raises HistoryError."""
    headers = list(given.headers)
    if given.bearer_token_file is not None:
        try:
            token = given.bearer_token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise HistoryError(f"--bearer-token-file {given.bearer_token_file} cannot be read") from None
        if not token.isprintable() or " " in token:
            raise HistoryError(f"--bearer-token-file {given.bearer_token_file} has more than one word")
        headers.append(("Authorization", f"Bearer {token}"))
    if given.ca_file is not None and not given.ca_file.is_file():
        raise HistoryError(f"--ca-file {given.ca_file} is no file")
    return Access(tuple(headers), given.ca_file, tuple(given.matchers))


@dataclass(frozen=True)
class Prometheus:
    """A client for the Prometheus at an http(s) URL. Every method of the client can raise HistoryError.

    A user and a password in the URL are sent as basic authentication, and are never shown. `skipped` collects the
    series with values that are no amounts.
    """

    url: str = field(repr=False)
    access: Access = OPEN
    skipped: set[str] = field(default_factory=set, compare=False)

    @property
    def address(self) -> str:
        """Returns the URL without its user and password."""
        return without_password(self.url)

    def refuse_what_is_mixed(self, metric: str, time: float, days: int, *, renamed: bool = True) -> None:
        """Raises HistoryError if the series of the metric are of several clusters, or have renamed labels."""
        labels = (*_CLUSTER_LABELS, *_RENAMED)
        found = self.at(f"count by ({', '.join(labels)}) (last_over_time({metric}[{days}d]))", time)
        for label in _CLUSTER_LABELS:
            clusters = sorted({series.labels.get(label, "") for series in found})
            if len(clusters) > 1:
                raise self._error(
                    f"the series of {metric} are of several clusters, by their label {label} ({', '.join(clusters)}); "
                    f"choose one, such as --match {label}={clusters[-1]}"
                )
        again = [label for label in _RENAMED if renamed and any(series.labels.get(label) for series in found)]
        if again:
            raise self._error(
                f"the scrape replaced labels of {metric} and renamed the exporter's to {' and '.join(again)}, so that "
                "no pod can be told; set honorLabels: true for its PodMonitor, and remove enforcedNamespaceLabel for it"
            )

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
        matched = {**asked, "query": with_matchers(asked["query"], self.access.matchers)}
        url = f"{self.address.rstrip('/')}/api/v1/{verb}?{urllib.parse.urlencode(matched)}"
        try:
            answer: Any = self._answer(url)
            if answer["status"] != "success":
                raise ValueError(answer["error"])
            if warnings := answer.get("warnings"):  # a federation reports warnings if one of its members is missing
                raise ValueError(f"the answer may lack parts: {'; '.join(map(str, warnings))}")
            return [self._series(_labels(series), values(series)) for series in answer["data"]["result"]]
        except urllib.error.HTTPError as error:
            raise self._error(f"{error}: {_reason(error)}") from None
        except (AttributeError, KeyError, TypeError):
            raise self._error("the answer has not the form of Prometheus'") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._error(error) from None

    def _answer(self, url: str) -> object:
        request = urllib.request.Request(url)  # noqa: S310 (SCHEMES alone)
        for name, value in (*_basic(self.url), *self.access.headers):
            request.add_unredirected_header(name, value)
        trusted = ssl.create_default_context(cafile=self.access.ca_file) if self.access.ca_file else None
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=trusted) as response:  # noqa: S310 (as above)
            return json.load(response)

    def _series(self, labels: Mapping[str, str], values: Any) -> Series:
        found = _values(values)
        kept = tuple(each for each in found if 0 <= each[1] < _MOST and each[1] not in _BLANK)
        if len(kept) < len(found):
            shown = ", ".join(f'{name}="{value}"' for name, value in sorted(labels.items()) if value)
            self.skipped.add(f"blank values of a series ({shown or 'without labels'}), which are no amounts")
        return Series(labels, kept)

    def _error(self, error: object) -> HistoryError:
        return HistoryError(f"{self.address}: {error}")


def without_password(url: str) -> str:
    """Returns a URL without the user and the password in it."""
    scheme, found, rest = url.rpartition("://")
    return f"{scheme}{found}{rest.rpartition('@')[2]}"


def with_matchers(query: str, matchers: Sequence[str]) -> str:
    """Returns the PromQL query with the matchers in the selector of each metric."""
    added = ",".join(matchers)

    def replaced(found: "re.Match[str]") -> str:
        name, selector = found[1] or found[3], found[2]
        if not name:
            return found[0]
        return f"{name}{{{added}{',' if selector else '}'}"

    return _METRIC.sub(replaced, query) if added else query


def _basic(url: str) -> Iterator[tuple[str, str]]:
    user, found, _ = url.rpartition("://")[2].rpartition("@")
    if found:
        encoded = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        yield "Authorization", f"Basic {encoded}"


def _labels(series: Any) -> Mapping[str, str]:
    return {str(name): str(value) for name, value in series.get("metric", {}).items()}


def _values(values: Any) -> tuple[tuple[float, float], ...]:
    """Returns the values of a series with their times. The function raises ValueError and TypeError."""
    found = tuple((float(time), float(value)) for time, value in values)
    for time, _ in found:
        if not 0 <= time <= LAST_SECONDS:
            raise ValueError(f"{time:g} is no time in seconds since 1970")
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
