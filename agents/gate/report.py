"""Makes the log line for each intent of the gate, and the Events on Deployments of on-demand workloads."""

from agents.gate.types import Action, Cause, Intent
from agents.kube.events import Event
from agents.runtime.log import Log
from tenancy.names import (
    EVENT_GATE_CLOSED,
    EVENT_GATE_LEFT_ALONE,
    EVENT_GATE_OPENED,
    EVENT_GATE_REFUSED,
    EVENT_GATE_UNANSWERED,
    EVENT_GATE_WAITS,
    EVENT_GATE_WOULD_CLOSE,
    EVENT_GATE_WOULD_OPEN,
)

_REASONS = {
    (Action.OPEN, False): EVENT_GATE_OPENED,
    (Action.CLOSE, False): EVENT_GATE_CLOSED,
    (Action.OPEN, True): EVENT_GATE_WOULD_OPEN,
    (Action.CLOSE, True): EVENT_GATE_WOULD_CLOSE,
}


def log_line(intent: Intent, log: Log) -> None:
    signal = intent.signal
    doubt = "" if signal.ripe else " if more samples agree"
    log.info(
        signal.act if signal.act is Action.KEEP else f"would {signal.act}{doubt}",
        gate=intent.gate.name,
        cause=signal.cause,
        why=signal.why,
        samples=signal.samples,
        needed=signal.needed,
    )


def act_event(intent: Intent, *, dry_run: bool) -> Event:
    """Returns the Event of an act, with the figures that caused the act.

    While the gate observes, the Event's text has no figures, so that equal intents make one Event.
    """
    signal, version = intent.signal, intent.state.deployment.resource_version
    note = f"would {signal.act}: {signal.cause}" if dry_run else f"{signal.cause}: {signal.why}"
    reason, warning = _REASONS[signal.act, dry_run], signal.cause is Cause.PRESSURE
    return _event(intent, reason, note, warning=warning, occasion="" if dry_run else version)


def keep_event(intent: Intent) -> Event | None:
    """Returns the Event for a workload that the gate does not scale, although its tenant may expect a change."""
    gate, cause, why = intent.gate, intent.signal.cause, intent.signal.why
    notes = {
        Cause.OTHER: (EVENT_GATE_LEFT_ALONE, f"the gate leaves it alone: {why}"),
        Cause.NO_ROOM: (
            EVENT_GATE_WAITS,
            f"{cause}: {gate.need_mib} MiB above the floor and a margin of {gate.margin_mib} must be free on every "
            f"device of {gate.pool}",
        ),
        Cause.NO_ANSWER: (
            EVENT_GATE_UNANSWERED,
            f"{cause}, so nothing changes: its probe fails; the gate's log says why",
        ),
        Cause.UNREADABLE: (EVENT_GATE_REFUSED, f"{cause}, so it stays as it is: {why}"),
    }
    if cause not in notes:
        return None
    reason, note = notes[cause]
    return _event(intent, reason, note, warning=cause is not Cause.NO_ROOM)


def refused_event(intent: Intent, why: str) -> Event:
    return _event(intent, EVENT_GATE_REFUSED, f"could not {intent.act}: {why}", warning=True)


def _event(intent: Intent, reason: str, note: str, *, warning: bool, occasion: str = "") -> Event:
    regarding = intent.state.deployment.reference
    return Event(regarding=regarding, reason=reason, note=note, action="Scale", warning=warning, occasion=occasion)
