"""How the gate reports an intent: a log line, and an Event on the Deployment."""

from agents.gate.types import Action, Cause, Intent
from agents.kube.errors import ApiError
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


def tell(intent: Intent, log: Log) -> None:
    """The line of one sample."""
    lean = intent.lean
    doubt = "" if intent.ripe else " if more samples agree"
    log.info(
        lean.act if lean.act is Action.KEEP else f"would {lean.act}{doubt}",
        gate=intent.gate.name,
        cause=lean.cause,
        why=lean.why,
        samples=intent.samples,
        needed=lean.needed,
    )


def act_event(intent: Intent, *, dry_run: bool) -> Event:
    """Of an act that was carried out, with its numbers; of one that would be, in words that stay the same."""
    lean, found = intent.lean, intent.entrance.deployment
    return Event(
        regarding=found.reference,
        reason=_REASONS[lean.act, dry_run],
        note=f"would {lean.act}: {lean.cause}" if dry_run else f"{lean.cause}: {lean.why}",
        action="Scale",
        warning=lean.cause is Cause.PRESSURE,
        occasion="" if dry_run else found.resource_version,
    )


def keep_event(intent: Intent) -> Event | None:
    """Why a gate that its tenant might expect to open, or to close, does not."""
    gate, lean = intent.gate, intent.lean
    if lean.cause is Cause.OTHER:
        reason, note = EVENT_GATE_LEFT_ALONE, f"the gate leaves it alone: {lean.why}"
    elif lean.cause is Cause.NO_ROOM:
        reason = EVENT_GATE_WAITS
        note = (
            f"{lean.cause}: {gate.need_mib} MiB above the floor and a margin of {gate.margin_mib} must be free on "
            f"every device of {gate.pool}"
        )
    elif lean.cause is Cause.NO_ANSWER:
        reason, note = (
            EVENT_GATE_UNANSWERED,
            f"{lean.cause}, so nothing changes: its probe fails; the gate's log says why",
        )
    elif lean.cause is Cause.UNREADABLE:
        reason, note = EVENT_GATE_REFUSED, f"{lean.cause}, so it stays as it is: {lean.why}"
    else:
        return None
    return Event(
        regarding=intent.entrance.deployment.reference,
        reason=reason,
        note=note,
        action="Scale",
        warning=lean.cause is not Cause.NO_ROOM,
    )


def refused_event(intent: Intent, error: ApiError) -> Event:
    """Of an act that the API did not do."""
    return Event(
        regarding=intent.entrance.deployment.reference,
        reason=EVENT_GATE_REFUSED,
        note=f"could not {intent.act}: {error}",
        action="Scale",
        warning=True,
    )
