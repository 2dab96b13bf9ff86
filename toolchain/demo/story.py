"""Declares the steps of the demo: a day of the residents of record 0000."""

from dataclasses import dataclass

from tenancy import names
from toolchain.cluster.control_plane import NODE
from toolchain.cluster.prod import NIGHT_MIB, STEADY_MIB, TTS_MIB, budgets

LEAK_MIB = 150  # A leaking process grows by this many MiB at each call of `Card.turn`, every 0.5 s.
FLOOR_MIB = 1536


@dataclass(frozen=True, kw_only=True)
class EventToShow:
    """The namespace and the reason of an Event that the demo shows."""

    namespace: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of the demo: a cause and its effect.

    `key` is the name of the method of `Stage` that runs the step. `type` is a command with which the viewer can see
    the effect.
    """

    key: str
    cause: str
    why: str
    effect: str
    type: str
    told: tuple[EventToShow, ...]
    shows: tuple[str, ...] = ("who",)


def story() -> tuple[Step, ...]:
    """Returns the steps in order."""
    budget = budgets()
    return (
        Step(
            key="residents",
            cause="the five residents start",
            why=f"Their seats, {sum(budget.values())} MiB, fit what the T4 offers (14000): pulumi preview proved it. "
            "The scheduler's extender puts each on the device and counts it there.",
            effect="all run, and hold their steady use",
            type="kubectl gpumem who --pool t4",
            told=(EventToShow(namespace="frigate", reason="Scheduled"),),
        ),
        Step(
            key="leak",
            cause=f"frigate leaks {2 * LEAK_MIB} MiB a second",
            why=f"It goes past its budget of {budget['frigate']} MiB and takes what others were promised. Under the "
            f"floor of {FLOOR_MIB} MiB the watchdog recycles only pods over their budget.",
            effect="frigate was recycled, its next pod is loaded, and nobody else lost a pod",
            type=_events("frigate", names.EVENT_RECYCLED),
            told=(EventToShow(namespace="frigate", reason=names.EVENT_RECYCLED),),
        ),
        Step(
            key="night",
            cause="at night immich-ml unloads its models",
            why=f"It holds {NIGHT_MIB} instead of {STEADY_MIB['immich-ml']} MiB. tts has no seat. Its gate starts it "
            f"once {TTS_MIB} MiB are free above the floor and a margin, in three readings.",
            effect=f"the gate scaled tts from 0 to 1, and it holds {TTS_MIB} MiB",
            type=_events("tts", names.EVENT_GATE_OPENED),
            told=(EventToShow(namespace="tts", reason=names.EVENT_GATE_OPENED),),
        ),
        Step(
            key="queue",
            cause="team-a's Job takes the one GPU that is handed out whole; team-b submits another",
            why="Without a queue the second Job's pod would fail or stay Pending. Kueue holds the Job back.",
            effect="team-a's nightly runs, team-b's later waits",
            type="kubectl gpumem why -n team-b job/later",
            told=(EventToShow(namespace="team-b", reason="Pending"),),
            shows=("why -n team-b job/later",),
        ),
        Step(
            key="urgent",
            cause="team-b submits an urgent Job",
            why="gpu-urgent is above gpu-batch, and the ClusterQueue preempts lower priorities.",
            effect="nightly was preempted and waits in the queue again, urgent runs",
            type=_events("team-a", "Preempted"),
            told=(EventToShow(namespace="team-a", reason="Preempted"),),
            shows=("why -n team-a job/nightly",),
        ),
        Step(
            key="seat",
            cause="llama-swap is restarted while tts runs, and all others load up to their budgets",
            why=f"llama-swap's seat of {budget['llama-swap']} MiB is a promise. The gate takes back the memory that "
            "it lent, and no pod with a seat is evicted.",
            effect="the gate stopped tts, and llama-swap is placed and loaded",
            type=_events("tts", names.EVENT_GATE_CLOSED),
            told=(
                EventToShow(namespace="llama-swap", reason=names.EVENT_SEAT_HELD),
                EventToShow(namespace="tts", reason=names.EVENT_GATE_CLOSED),
            ),
            shows=("who", "status", "changes --since 1h", f"drain {NODE}"),
        ),
    )


def _events(namespace: str, reason: str) -> str:
    return f"kubectl get events -n {namespace} --field-selector reason={reason}"
