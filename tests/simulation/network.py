"""Simulates an API server that fails some requests, and exporters with wrong metrics."""

import http.client
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from agents.exporter.attribution import NodeUse
from agents.kube.errors import ApiError, refusal, unanswered
from agents.runtime.http_client import FetchError
from agents.telemetry.reading import Reading
from tenancy.units import MIB
from tests.simulation.model.api import PODS, KilledError, Object, Server, StatusError
from tests.simulation.model.exporter import Exporter

# The statuses of a write that the API server refuses because the client does not know the object's state.
_VAIN = (http.client.CONFLICT, http.client.NOT_FOUND)
_SCANS_SECONDS = 65.0  # An agent acts on readings of at most this age.


@dataclass
class FaultyServer(Server):
    slow: list[float] = field(default_factory=list)
    odds: dict[str, float] = field(default_factory=dict)
    refused: dict[str, tuple[str, int]] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    kill: dict[str, int] = field(default_factory=dict)
    failed: dict[str, float] = field(default_factory=dict)
    told: list[Callable[[Object], None]] = field(default_factory=list)
    listed: dict[str, float] = field(default_factory=dict)  # the time of each client's last list of pods
    vain: dict[tuple[str, str], int] = field(default_factory=dict)
    undated: bool = False
    ended_at: float = 0.0  # the time when the watches ended last
    who: str = ""

    @property
    def is_faulty(self) -> bool:
        return bool(self.slow or self.odds or self.refused or self.down)

    def handle(self, method: str, path: str, body: Object | None) -> Object:
        answer = super().handle(method, path, body)
        if method == "POST" and path.endswith("/events"):
            for tell in self.told:
                tell(answer)
        return answer

    def date(self) -> datetime | None:
        return None if self.undated else super().date()

    def end_watches(self) -> None:
        super().end_watches()
        self.ended_at = self.world.now

    def exchange(self, who: str, method: str, path: str, body: Object | None, timeout_seconds: float) -> Object:
        """Raises KilledError if the process of the current client is killed."""
        where = path.partition("?")[0]
        request = f"{method} {where}"
        if where == PODS and method == "GET":
            self.listed[who] = self.world.now
        self._kill(who, request)
        try:
            self._wait(who, request, timeout_seconds, lambda: self._handle_late(method, path, body))
            fate = self._fate(who, request, method)
            self.who = who
            answer = super().exchange(who, method, path, body, timeout_seconds)
            if fate == "doubled":
                answer = super().exchange(who, method, path, body, timeout_seconds)
            self.vain.pop((who, request), None)
        except ApiError as error:
            if method != "GET" and error.status in _VAIN and not self.is_faulty:
                self.vain[who, request] = self.vain.get((who, request), 0) + 1
            raise
        if fate == "lost":
            raise unanswered(request, http.client.RemoteDisconnected("closed connection without response"))
        return answer

    def _wait(self, who: str, request: str, timeout_seconds: float, late: Callable[[], None]) -> None:
        if self.slow:
            waits = max(self.slow) * (0.5 + self.world.dice.random())
            if waits > timeout_seconds:
                self.failed[who] = self.world.now
                self.world.pass_time(timeout_seconds)
                self.world.after(waits - timeout_seconds, late)
                raise unanswered(request, TimeoutError("timed out"))
            self.world.pass_time(waits)
        if self.down:
            self.failed[who] = self.world.now
            self.world.pass_time(0.05)
            raise unanswered(request, ConnectionRefusedError("connection refused"))

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
            self.failed[who] = self.world.now
            self.world.say(who, f"is killed before {request}")
            raise KilledError

    def _fate(self, who: str, request: str, method: str) -> str:
        for part, (cause, code) in self.refused.items():
            if all(piece in request for piece in part.split("*")):
                self.world.see(f"api: {code} {cause}")
                raise refusal(request, StatusError(code, cause).status)
        for part, left in [*self.lost.items()]:
            if part in f"{who} {request}" and left:
                self.lost[part] = left - 1
                self.failed[who] = self.world.now
                self.world.say("api", f"the answer to {who}'s {request} is lost")
                self.world.see("api: lost")
                return "lost"
        for fate, odds in self.odds.items():
            if self.world.dice.random() < odds:
                if fate in ("lost", "doubled") and method == "GET":
                    continue
                self.failed[who] = self.world.now
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
    trouble: str = ""
    selected: bool = True
    frozen: tuple[int, str] | None = None
    untrusted_since: float | None = None
    # The last readings of the devices: the time, and the free MiB of each device by UUID.
    scans: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    shown: Callable[["FaultyExporter", Reading], None] = lambda exporter, found: None

    def _read(self) -> NodeUse:
        found = super()._read()
        recent = [each for each in self.scans if self.world.now - each[0] <= _SCANS_SECONDS]
        free = {each.device.uuid: each.device.free_bytes // MIB for each in self.scan.occupancies}
        self.scans = [*recent, (self.world.now, free)]
        return found

    def fetch(self, url: str) -> str:
        if not self._is_reachable():
            if self.trouble == "hangs" or not self.machine.alive:
                self.world.pass_time(1.5)
            raise FetchError(f"{url}: timed out")
        text = super().fetch(url)
        if self.trouble == "halved":
            return _halved(text)
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
        self.shown(self, found)
        return found

    def serves(self, name: str) -> bool:
        return self._is_reachable() and f"\n{name}{{" in self.gauge.metrics()[1]

    def _is_reachable(self) -> bool:
        return self.machine.alive and self.selected and self.trouble not in ("gone", "hangs")


def _halved(text: str) -> str:
    lines = text.splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if line.startswith("gpu_device_memory_free_bytes{"))
    return "".join(lines[:last] + lines[last + 1 :])


def _shifted(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if line.startswith("gpu_device_memory_free_bytes{"):
            name, _, value = line.rpartition(" ")
            lines.append(f"{name} {float(value) + 5000 * 2**20!r}")
        else:
            lines.append(line)
    return "\n".join((*lines, ""))
