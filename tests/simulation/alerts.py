"""Whether a fault that lasts has an alert: the stack's own rules, evaluated by promtool over the simulated series.

The series are what Prometheus would scrape: the exporters' and the extender's own answers, and of kube-state-metrics
what the rules use. They are taken each 15 s from 5 minutes before the fault on.
"""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from agents.runtime import exposition
from agents.runtime.http_message import HttpRequest
from components.monitoring.rules.alert import sanitised
from simulation.scheduler import advertised
from tests.simulation import faults
from tests.simulation.faults import DAY, Entry, Plan
from tests.simulation.system import SYSTEM, System, system
from tests.support.alerting import SCRAPE_SECONDS, promtool

BEFORE_SECONDS = 300.0
# A fault of three minutes, and what a scrape and an evaluation take.
FIRES_SECONDS = 180.0 + 2 * SCRAPE_SECONDS
_NAME = re.compile(r'alertname="(\w+)"')

# Of which alerts one must tell of the fault.
TELLS: Mapping[str, frozenset[str]] = {
    "exporter gone": frozenset({"GpuTelemetryMissing"}),
    "exporter hangs": frozenset({"GpuTelemetryMissing"}),
    "exporter fails": frozenset({"GpuTelemetryMissing"}),
    "exporter frozen": frozenset({"GpuTelemetryFrozen"}),
    "exporter lies": frozenset({"GpuTelemetryImplausible"}),
    "exporter partial": frozenset({"GpuTelemetryPartial"}),
    "node_dies k8s": frozenset({"GpuTelemetryMissing", "GpuCapacityDrift"}),
    "outage": frozenset({"GpuAgentSilent", "GpuBudgetsStale"}),
    # A label that reconcile alone reads is none: capacity is held, and everybody protected.
    "label present": frozenset({"GpuTelemetryMissing"}),
    "node_patch": frozenset({"GpuAgentSilent"}),
    "clock": frozenset({"GpuAgentSilent"}),
}


def kind_of(entry: Entry) -> str | None:
    """What of TELLS the entry is; None where no alert is due: it is too short, or the agents cope."""
    if entry.given.get("seconds", 0.0) < FIRES_SECONDS:
        return None
    kind = f"{entry.what} {entry.given.get('kind') or entry.given.get('key', '')}".strip()
    if entry.what == "node_dies":
        kind = f"node_dies {str(entry.given['node']).partition('-')[0]}"
    if entry.what == "clock" and abs(entry.given["ahead"]) <= 30:  # agents bear so much
        return None
    return kind if kind in TELLS else None


@dataclass
class Recorder:
    """Series by their name in PromQL, a value or None at each scrape."""

    system: System
    begin: float
    series: dict[str, list[float | None]] = field(default_factory=dict)
    scrapes: int = 0

    def take(self) -> None:
        for name, value in self._now():
            self.series.setdefault(name, [None] * self.scrapes).append(value)
        self.scrapes += 1
        for values in self.series.values():
            values.extend([None] * (self.scrapes - len(values)))

    def _now(self) -> Iterator[tuple[str, float]]:
        simulated = self.system
        for node, exporter in simulated.exporters.items():
            try:
                status, text = exporter.answer()
            except OSError:
                continue
            if status == 200:
                yield from _samples(text, {"node": node, "instance": exporter.address})
        if simulated.extender.alive:
            answer = simulated.extender.extender.open_desk.answer(HttpRequest("GET", "/metrics"))
            if answer.status == 200:
                yield from _samples(answer.body.decode(), {"pod": "scheduler-0"})
        for name, agent in simulated.crons.items():
            labels = {"namespace": SYSTEM, "cronjob": name}
            yield _name("kube_cronjob_status_last_successful_time", labels), agent.succeeded_at - self.begin
        # The guard of host memory is no part of this; it is there.
        yield _name("memory_guard_api_age_seconds", {"node": "node-4", "instance": "guard"}), 1.0
        yield from self._objects()

    def _objects(self) -> Iterator[tuple[str, float]]:
        names = self.system.stack.ledger.names
        for node, found in self.system.server.nodes.items():
            for resource in (names.gpumem, names.gpu_count):
                if resource in found["status"]["allocatable"]:
                    labels = {"node": node, "resource": sanitised(resource)}
                    yield _name("kube_node_status_allocatable", labels), float(advertised(found, resource))
        for (namespace, pod), found in self.system.server.pods.items():
            labels = {"namespace": namespace, "pod": pod}
            yield _name("kube_pod_status_phase", {**labels, "phase": found["status"]["phase"]}), 1.0
            limits = found["spec"]["containers"][0]["resources"]["limits"]
            if names.gpumem in limits:
                labels |= {"resource": sanitised(names.gpumem), "container": "main"}
                yield _name("kube_pod_container_resource_requests", labels), float(limits[names.gpumem])


def _samples(text: str, labels: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    for sample in exposition.parse(text):
        yield _name(sample.name, {**sample.labels, **labels}), sample.value


def _name(name: str, labels: Mapping[str, str]) -> str:
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in sorted(labels.items())) + "}"


@dataclass(frozen=True)
class Heard:
    """What fired when the fault began, and so long after it; `due` are those of which one must."""

    entry: Entry
    due: frozenset[str]
    before: frozenset[str]
    then: frozenset[str]

    @property
    def missed(self) -> bool:
        return not self.due & self.then

    def __str__(self) -> str:
        return f"{self.entry}: due {sorted(self.due)}, fires {sorted(self.then)}, before it {sorted(self.before)}"


def listen(plan: Plan, folder: Path) -> list[Heard]:
    """Of each fault of the plan that lasts, whether an alert tells of it."""
    heard = []
    for entry in plan.entries:
        kind = kind_of(entry)
        if kind is not None:
            heard.append(_listen(plan, entry, TELLS[kind], folder))
    return heard


def _listen(plan: Plan, entry: Entry, due: frozenset[str], folder: Path) -> Heard:
    begin = max(entry.at - BEFORE_SECONDS, 0.0)
    with system(plan.shape, Random(plan.seed + 1)) as simulated:  # noqa: S311 (a simulation)
        faults.carry_out(simulated, plan)
        recorder = Recorder(simulated, begin)
        at = begin
        while at <= entry.at + FIRES_SECONDS:
            simulated.world.at(at, recorder.take)
            at += SCRAPE_SECONDS
        simulated.run(min(entry.at + FIRES_SECONDS + 1, plan.days * DAY))
        rules = simulated.stack.rules
    fault = int(entry.at - begin)
    before, then = _firing(rules, recorder.series, (fault, fault + int(FIRES_SECONDS)), folder)
    return Heard(entry, due, before, then)


def _firing(
    rules: Mapping[str, object], series: Mapping[str, list[float | None]], seconds: tuple[int, ...], folder: Path
) -> list[frozenset[str]]:
    """The names of the alerts that fire at each of these seconds, as promtool says."""
    (folder / "rules.yaml").write_text(json.dumps(rules))
    found = []
    for second in seconds:
        test = {
            "rule_files": ["rules.yaml"],
            "evaluation_interval": "5s",
            "tests": [
                {
                    "interval": f"{SCRAPE_SECONDS}s",
                    "input_series": [{"series": name, "values": _values(values)} for name, values in series.items()],
                    "promql_expr_test": [
                        {"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{second}s", "exp_samples": []}
                    ],
                }
            ],
        }
        (folder / "test.yaml").write_text(json.dumps(test))
        told = subprocess.run(
            [promtool(), "test", "rules", folder / "test.yaml"], capture_output=True, text=True, check=False
        )
        text = told.stdout + told.stderr
        assert told.returncode == 0 or "got:" in text, text[-2000:]
        found.append(frozenset(_NAME.findall(text.partition("got:")[2])))
    return found


def _values(values: list[float | None]) -> str:
    return " ".join("stale" if value is None else repr(value) for value in values)
