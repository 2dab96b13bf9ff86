"""Runs kube-scheduler and the extender as two processes, like the scheduler's pod."""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agents.runtime import exposition
from agents.runtime.exposition import Sample
from tenancy import names
from tests.support.http_get import get


@dataclass
class SchedulerPod:
    name: str
    folder: Path
    http_port: int
    command: Sequence[str]
    environment: Mapping[str, str]
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def start(self, part: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        with (self.folder / f"{part}.log").open("ab") as log:
            self.processes[part] = subprocess.Popen(
                list(command), env=dict(environment), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def start_extender(self) -> None:
        self.start("extender", self.command, self.environment)

    def kill(self, part: str, how: signal.Signals = signal.SIGKILL) -> None:
        self.processes[part].send_signal(how)
        self.processes[part].wait(120)

    def get(self, path: str) -> tuple[int, str]:
        return get(f"http://127.0.0.1:{self.http_port}{path}")

    def samples(self) -> tuple[Sample, ...]:
        return exposition.parse(self.get("/metrics")[1])

    def value(self, name: str, **labels: str) -> float | None:
        return next((s.value for s in self.samples() if s.name == name and labels.items() <= s.labels.items()), None)

    @property
    def leads(self) -> bool:
        return self.value(names.METRIC_EXTENDER_LEADING) == 1
