"""Declares the steps of the demo: a day of the residents of record 0000."""

from collections.abc import Callable
from dataclasses import dataclass

from tenancy import names
from toolchain.cluster.prod import NIGHT_MIB, STEADY_MIB, TTS_MIB, budgets
from toolchain.demo.stage import LEAK_MIB, EventToShow, Stage

FLOOR_MIB = 1536


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of the demo: a cause and its effect.

    `act` triggers the cause and waits for the effect. `shows` are commands of kubectl gpumem.
    """

    act: Callable[[Stage], None]
    cause: str
    why: str
    effect: str
    told: tuple[EventToShow, ...]
    shows: tuple[str, ...] = ("who --pool t4",)


def story() -> tuple[Step, ...]:
    """Returns the steps in order."""
    budget = budgets()
    return (
        Step(
            act=Stage.residents,
            cause="the five residents start",
            why=f"Their seats, {sum(budget.values())} MiB, fit what the T4 offers (14000): pulumi preview proved it. "
            "The scheduler's extender puts each on the device and counts it there.",
            effect="all run, and hold their steady use",
            told=(EventToShow(namespace="frigate", reason="Scheduled"),),
        ),
        Step(
            act=Stage.leak,
            cause=f"frigate leaks {2 * LEAK_MIB} MiB a second",
            why=f"It goes past its budget of {budget['frigate']} MiB and takes what others were promised. Under the "
            f"floor of {FLOOR_MIB} MiB the watchdog recycles only pods over their budget.",
            effect="frigate was recycled, its next pod is loaded, and nobody else lost a pod",
            told=(EventToShow(namespace="frigate", reason=names.EVENT_RECYCLED),),
        ),
        Step(
            act=Stage.night,
            cause="at night immich-ml unloads its models",
            why=f"It holds {NIGHT_MIB} instead of {STEADY_MIB['immich-ml']} MiB. tts has no seat. Its gate starts it "
            f"once {TTS_MIB} MiB are free above the floor and a margin, in three readings.",
            effect=f"the gate scaled tts from 0 to 1, and it holds {TTS_MIB} MiB",
            told=(EventToShow(namespace="tts", reason=names.EVENT_GATE_OPENED),),
        ),
        Step(
            act=Stage.queue,
            cause="team-a's Job takes the one GPU that is handed out whole; team-b submits another",
            why="Without a queue the second Job's pod would fail or stay Pending. Kueue holds the Job back.",
            effect="team-a's nightly runs, team-b's later waits",
            told=(EventToShow(namespace="team-b", reason="Pending"),),
            shows=("why -n team-b job/later",),
        ),
        Step(
            act=Stage.urgent,
            cause="team-b submits an urgent Job",
            why="gpu-urgent is above gpu-batch, and the ClusterQueue preempts lower priorities.",
            effect="nightly was preempted and waits in the queue again, urgent runs",
            told=(EventToShow(namespace="team-a", reason="Preempted"),),
            shows=("why -n team-a job/nightly",),
        ),
        Step(
            act=Stage.seat,
            cause="llama-swap is restarted while tts runs, and all others load up to their budgets",
            why=f"llama-swap's seat of {budget['llama-swap']} MiB is a promise. The gate takes back the memory that "
            "it lent, and no pod with a seat is evicted.",
            effect="the gate stopped tts, and llama-swap is placed and loaded",
            told=(
                EventToShow(namespace="llama-swap", reason=names.EVENT_SEAT_HELD),
                EventToShow(namespace="tts", reason=names.EVENT_GATE_CLOSED),
            ),
            shows=("who --pool t4", "status", "changes --since 1h"),
        ),
    )
