"""Writes the watchdog's log lines, and its Events on pods and nodes."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime

from agents.kube.events import Event, Recorder, Reference
from agents.kube.nodes import Node
from agents.runtime.log import Log
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.device import Uncapped
from agents.telemetry.reading import Trouble
from agents.watchdog.evict import EvictionOutcome, EvictionResult
from agents.watchdog.types import Decision, DeviceVerdict, RecycleTarget
from tenancy import names

_ACTION = "Recycle"
# For these kinds of trouble, the Event contains the problem itself.
_EXPLAINED = (Trouble.UNOWNED, Trouble.UNJUDGED)


@dataclass(frozen=True, kw_only=True)
class Reporter:
    """Writes the reports of one pass of the watchdog. `reported` has the UID and the reason of each Event that its run
    must not repeat.
    """

    log: Log
    recorder: Recorder
    resource: str
    now: datetime
    reported: set[tuple[str, str]] = field(default_factory=set)

    def report(self, decision: Decision) -> None:
        if decision.problem:
            self.log.warning(f"no action: {decision.problem}")
        for blind in decision.blind:
            self.log.warning("no action: telemetry cannot be trusted", **asdict(blind))
        for verdict in decision.verdicts:
            if verdict.pressed:
                short = "under the floor" if verdict.free_mib < verdict.floor_mib else "short of memory for a seat"
                self.log.warning(short, seats=verdict.demand.seats, ended=verdict.ended, **_fields(verdict))
            for spared in verdict.spared:
                self.log.warning("over its budget and left alone", why=spared.why, **_about(spared.target))
        self.log.info(
            "judged",
            devices=len(decision.verdicts),
            under_the_floor=sum(verdict.pressed for verdict in decision.verdicts),
            not_judged=len(decision.blind),
        )

    def warn(self, decision: Decision, nodes: Mapping[str, Node]) -> None:
        """Writes the Events about problems that cause no recycle.

        A missing exporter causes no Event, because an alert reports it.
        """
        for blind in decision.blind:
            if blind.trouble is not Trouble.MISSING and blind.node in nodes:
                what = "it" if blind.gpu is None else f"GPU {blind.gpu}"
                why = blind.problem if blind.trouble in _EXPLAINED else f"its telemetry is {blind.trouble}"
                note = f"no pod is recycled on {what}: {why}"
                self._once(nodes[blind.node].reference, names.EVENT_BLIND, note, of=what)
        for verdict in decision.verdicts:
            gpu = f"GPU {verdict.device.gpu} of {verdict.node}"
            for pod in verdict.undeclared:
                note = f"uses {gpu} and declares no {self.resource}"
                self._once(pod, names.EVENT_UNDECLARED, note)
            for spared in verdict.spared:
                if spared.lasting:
                    note = f"uses more of {gpu} than it declared while others lack it, and is left alone: {spared.why}"
                    self._once(spared.target.first.reference, names.EVENT_SPARED, note)
            if verdict.too_little:
                note = _too_little(verdict, gpu)
                self._once(nodes[verdict.node].reference, names.EVENT_TOO_LITTLE, note, of=gpu)
            if verdict.limited:
                note = f"{gpu} is short of memory, and the limit of {verdict.limited} protects its offenders"
                self._once(nodes[verdict.node].reference, names.EVENT_CAPPED, note)

    def warn_of_caps(self, readings: Iterable[NodeTelemetry]) -> None:
        """Writes an Event for each container that the driver does not cap at its budget."""
        for reading in readings:
            for cap in reading.caps:
                # The exporter does not see the control group of a container while it restarts.
                if cap.why_not and cap.container and cap.why_not != Uncapped.GROUPLESS:
                    note = (
                        f"NVIDIA's driver on {reading.node} is not shown to hold container {cap.container} to its "
                        f"{self.resource}: {cap.why_not}"
                    )
                    self._once(cap.reference, names.EVENT_UNCAPPED, note, of=cap.container)

    def rehearsed(self, verdict: DeviceVerdict, target: RecycleTarget) -> None:
        self.log.warning("would recycle", **_about(target), **_fields(verdict))
        pool = verdict.assumed_pool
        condition = f"the numbers of pool {pool} were not assumed" if pool else "the watchdog was armed"
        note = f"would be recycled if {condition}, because {_reason(verdict, target)}"
        self._record(target.first.reference, names.EVENT_WOULD_RECYCLE, note, occasion=self.now.isoformat())

    def acted(self, verdict: DeviceVerdict, target: RecycleTarget, results: Iterable[EvictionResult]) -> None:
        """Writes the same Event on each object of a result, so that `kubectl describe` shows it on each object."""
        why = _reason(verdict, target)
        for act in results:
            self.log.warning(act.outcome, detail=act.detail, **_about(target), **_fields(verdict))
            for regarding in act.about:
                if act.outcome is EvictionOutcome.REFUSED:
                    note = f"is not recycled: {act.detail} Reason for the recycle: {why}"
                    self._once(regarding, names.EVENT_BLOCKED, note)
                elif act.outcome.done:
                    note = f"{_done(act, target)} because {why}"
                    self._record(regarding, names.EVENT_RECYCLED, note, occasion=self.now.isoformat())

    def _once(self, regarding: Reference, reason: str, note: str, of: str = "") -> None:
        if (regarding.uid, reason + of) in self.reported:
            return
        self.reported.add((regarding.uid, reason + of))
        self.log.warning(note, reason=reason, namespace=regarding.namespace, name=regarding.name)
        self._record(regarding, reason, note)

    def _record(self, regarding: Reference, reason: str, note: str, occasion: str = "") -> None:
        event = Event(regarding=regarding, reason=reason, note=note, action=_ACTION, warning=True, occasion=occasion)
        self.recorder.try_record(event, self.now, self.log)


def _done(act: EvictionResult, target: RecycleTarget) -> str:
    if act.outcome is EvictionOutcome.EVICTED:
        return "evicted"
    if act.outcome is EvictionOutcome.DELETED:
        return f"deleted, although a PodDisruptionBudget refused its eviction ({act.detail})"
    return f"Workload {target.first.queued_as} was deactivated (spec.active false; true queues it again)"


def _reason(verdict: DeviceVerdict, target: RecycleTarget) -> str:
    declared_mib = sum(pod.declared_each_mib for pod in target.pods)
    demand = verdict.demand
    seats = f", {demand.mib} more are needed for {', '.join(demand.seats)}" if demand.seats else ""
    return (
        f"GPU {verdict.device.gpu} of {verdict.node} has {verdict.free_mib} MiB free, its floor is "
        f"{verdict.floor_mib}{seats}, and {target} uses {target.used_mib} MiB of it, having declared {declared_mib}"
    )


def _too_little(verdict: DeviceVerdict, gpu: str) -> str:
    pods = ", ".join(map(str, verdict.too_little))
    over_mib = sum(target.overshoot_mib for target in verdict.too_little)
    return (
        f"{gpu} is {verdict.missing_mib} MiB short of memory, and nobody is recycled: {pods} would give back "
        f"{over_mib} MiB, which is too little; lower a budget or the floor, or end what uses the rest"
    )


def _fields(verdict: DeviceVerdict) -> dict[str, object]:
    own = {name: getattr(verdict, name) for name in ("node", "free_mib", "floor_mib", "going_mib", "samples")}
    return {"gpu": verdict.device.gpu, "uuid": verdict.device.uuid, **own}


def _about(target: RecycleTarget) -> dict[str, object]:
    return {
        "pods": [str(pod) for pod in target.pods],
        "workload": target.workload,
        "used_mib": target.used_mib,
        "overshoot_mib": target.overshoot_mib,
    }
