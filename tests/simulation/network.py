"""An API server with failing requests, and exporters with wrong metrics."""

import http.client
from dataclasses import dataclass, field

from agents.kube.errors import refusal, unanswered
from agents.runtime.http_client import FetchError
from agents.telemetry.reading import Reading
from simulation.api import KilledError, Object, Server, StatusError
from simulation.exporter import Exporter


@dataclass
class FaultyServer(Server):
    """An API server with faults.

    `slow` has the seconds that a request takes; the longest time counts. `odds` has the probability of each kind of
    failure. `refused` maps a pattern for requests to a cause and a status. In a pattern, "*" matches any text. `lost`
    maps a part of a request to the number of responses to drop. `kill` maps a client to the number of requests after
    which the client is killed.
    """

    slow: list[float] = field(default_factory=list)
    odds: dict[str, float] = field(default_factory=dict)
    refused: dict[str, tuple[str, int]] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    kill: dict[str, int] = field(default_factory=dict)

    def exchange(self, who: str, method: str, path: str, body: Object | None, timeout_seconds: float) -> Object:
        """Returns the response to a request. Raises ApiError. Raises KilledError if the process of the client `who` is
        killed.
        """
        request = f"{method} {path.partition('?')[0]}"
        self._kill(who, request)
        if self.slow:
            waits = max(self.slow) * (0.5 + self.world.dice.random())
            if waits > timeout_seconds:
                self.world.pass_time(timeout_seconds)
                self.world.after(waits - timeout_seconds, lambda: self._handle_late(method, path, body))
                raise unanswered(request, TimeoutError("timed out"))
            self.world.pass_time(waits)
        if self.down:
            self.world.pass_time(0.05)
            raise unanswered(request, ConnectionRefusedError("connection refused"))
        fate = self._fate(who, request, method)
        answer = super().exchange(who, method, path, body, timeout_seconds)
        if fate == "doubled":
            answer = super().exchange(who, method, path, body, timeout_seconds)
        if fate == "lost":
            raise unanswered(request, http.client.RemoteDisconnected("closed connection without response"))
        return answer

    def _handle_late(self, method: str, path: str, body: Object | None) -> None:
        try:
            self.handle(method, path, body)
        except StatusError:
            self.world.see("api: refused after its client gave up")

    def _kill(self, who: str, request: str) -> None:
        left = self.kill.get(who)
        if left is None:
            return
        self.kill[who] = left - 1
        if not left:
            del self.kill[who]
            self.world.say(who, f"is killed before {request}")
            raise KilledError

    def _fate(self, who: str, request: str, method: str) -> str:
        """Returns the kind of failure of the response, or "". Raises ApiError if the request must have no effect."""
        for part, (cause, code) in self.refused.items():
            if all(piece in request for piece in part.split("*")):
                self.world.see(f"api: {code} {cause}")
                raise refusal(request, StatusError(code, cause).status)
        for part, left in [*self.lost.items()]:
            if part in f"{who} {request}" and left:
                self.lost[part] = left - 1
                self.world.say("api", f"the answer to {who}'s {request} is lost")
                self.world.see("api: lost")
                return "lost"
        for fate, odds in self.odds.items():
            if self.world.dice.random() < odds:
                if fate in ("lost", "doubled") and method == "GET":
                    continue
                self.world.see(f"api: {fate}")
                if fate in ("lost", "doubled"):
                    return fate
                if fate == "silent":
                    raise unanswered(request, http.client.RemoteDisconnected("closed connection without response"))
                error = refusal(request, StatusError(int(fate), "on order").status)
                error.retry_after_seconds = 1.0 if fate == "429" else None
                raise error
        return ""


@dataclass(kw_only=True)
class FaultyExporter(Exporter):
    """An exporter with faults. `trouble` is "gone", "hangs", "frozen", "lies", or "" without a fault.

    `selected` is True if the DaemonSet selects the node.
    """

    trouble: str = ""
    selected: bool = True
    frozen: tuple[int, str] | None = None

    def fetch(self, url: str) -> str:
        if not self._is_reachable():
            if self.trouble == "hangs" or not self.machine.alive:
                self.world.pass_time(1.5)
            raise FetchError(f"{url}: timed out")
        text = super().fetch(url)
        return _shifted(text) if self.trouble == "lies" else text

    def metrics(self) -> tuple[int, str]:
        if self.trouble == "frozen":
            self.frozen = self.frozen or super().metrics()
            return self.frozen
        self.frozen = None
        return super().metrics()

    def reading(self, url: str) -> Reading:
        if self.trouble or not self._is_reachable():
            self.parsed = None
        found = super().reading(url)
        self.parsed = None if self.trouble else self.parsed
        return found

    def serves(self, name: str) -> bool:
        """Returns True if a scrape would now contain the metric `name`."""
        return self._is_reachable() and f"\n{name}{{" in self.gauge.metrics()[1]

    def _is_reachable(self) -> bool:
        return self.machine.alive and self.selected and self.trouble not in ("gone", "hangs")


def _shifted(text: str) -> str:
    """Returns metrics that contradict each other: the free memory is too high by 5000 MiB."""
    lines = []
    for line in text.splitlines():
        if line.startswith("gpu_device_memory_free_bytes{"):
            name, _, value = line.rpartition(" ")
            lines.append(f"{name} {float(value) + 5000 * 2**20!r}")
        else:
            lines.append(line)
    return "\n".join((*lines, ""))
