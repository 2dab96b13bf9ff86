"""Lists plans that found a defect, with the promise that each plan broke."""

from dataclasses import dataclass

from tests.simulation.plan import DAY, Entry, Plan
from tests.simulation.system import Shape

TWO_NODES = Shape(stack="two nodes", nodes=2)
TWO_DEVICES = Shape(stack="two devices", cards=2)


@dataclass(frozen=True)
class Case:
    name: str
    broke: str
    plan: Plan

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def plan(
    *entries: tuple[float, str, dict[str, object]],
    minutes: float,
    shape: Shape = Shape(),  # noqa: B008
    seed: int = 0,
) -> Plan:
    return Plan(shape=shape, entries=tuple(Entry(*entry) for entry in entries), days=minutes * 60 / DAY, seed=seed)


def over(at: float, name: str, mib: int, seconds: float = 7200.0) -> tuple[float, str, dict[str, object]]:
    return at, "burst", {"name": name, "mib": mib, "seconds": seconds, "lies": True}


CASES = (
    Case(
        "a seat is refused while all others keep to theirs",
        "seat waits",
        plan(
            *(
                (600.0, "burst", {"name": name, "mib": mib, "seconds": 7200.0, "lies": True})
                for name, mib in (
                    ("immich-ml", 850), ("llama-swap", 546), ("frigate", 54), ("immich-server", 571),
                )
            ),
            (900.0, "restart", {"name": "llama-swap"}),
            minutes=30,
            shape=Shape(outside_mib=900),
        ),
    ),
    Case(
        "a resident that restarts finds its memory lent",
        "seat waits for what gates lent",
        plan(
            (400.0, "idle", {"name": "frigate", "mib": 1600, "seconds": 7200.0}),
            (400.0, "demand", {"name": "ebook2audiobook", "seconds": 7200.0}),
            (400.0, "demand", {"name": "ytdlp", "seconds": 7200.0}),
            (900.0, "restart", {"name": "llama-swap"}),
            minutes=30,
        ),
    ),
    Case(
        "gates open into the memory of residents that boot",
        "an absent seat's memory lent",
        plan(
            (400.0, "demand", {"name": "ebook2audiobook", "seconds": 7200.0}),
            (400.0, "demand", {"name": "ytdlp", "seconds": 7200.0}),
            (900.0, "reboots", {"node": "k8s-node1", "boot": 120.0}),
            minutes=30,
        ),
    ),
    Case(
        "a gate closes though what terminates is enough",
        "put out in vain",
        plan(
            (400.0, "demand", {"name": "ytdlp", "seconds": 7200.0}),
            (400.0, "job", {"name": "train", "mib": 1500, "over": 0, "seconds": 600.0, "rank": 100}),
            (700.0, "slow_end", {"name": "train", "grace": 60, "seconds": 3600.0}),
            (1003.0, "burst", {"name": "immich-ml", "mib": 1200, "seconds": 45.0}),
            minutes=30,
            shape=Shape(stack="queue"),
        ),
    ),
    Case(
        "an eviction that is refused saves every other offender",
        "pressure stays",
        plan(
            (500.0, "refuses", {"name": "immich-ml", "status": 500, "seconds": 3600.0}),
            over(600.0, "frigate", 1200),
            over(610.0, "immich-ml", 2500),
            minutes=40,
        ),
    ),
    Case(
        "a namespace that refuses saves every other offender",
        "pressure stays",
        plan(
            (500.0, "hidden", {"namespace": "immich", "status": 403, "seconds": 3600.0}),
            over(600.0, "frigate", 1200),
            over(610.0, "immich-ml", 2500),
            minutes=40,
        ),
    ),
    Case(
        "an agent stops with the node of its run",
        "agent stopped",
        plan((665.0, "node_dies", {"node": "worker-2", "seconds": 3600.0}), minutes=30),
    ),
    Case(
        "a pod that takes an hour to end saves the next offender",
        "pressure stays",
        plan(
            (500.0, "slow_end", {"name": "immich-ml", "grace": 3600, "seconds": 5000.0}),
            over(600.0, "immich-ml", 2800),
            over(1000.0, "frigate", 2500),
            minutes=40,
        ),
    ),
    Case(
        "a disruption budget on one offender saves the other",
        "pressure stays",
        plan(
            (500.0, "blocks", {"name": "immich-ml", "seconds": 5000.0}),
            over(600.0, "frigate", 700),
            over(610.0, "immich-ml", 2500),
            minutes=40,
        ),
    ),
    Case(
        "a lost answer makes the runaway immune",
        "pressure stays",
        plan(
            (590.0, "lost", {"part": "gpu-vram-watchdog PATCH"}),
            over(600.0, "immich-ml", 2800),
            minutes=20,
        ),
    ),
    Case(
        "one tenant's four recycles end everybody's protection",
        "pressure stays",
        plan(
            over(600.0, "immich-ml", 2400),
            over(3700.0, "frigate", 1000),
            minutes=75,
        ),
    ),
    Case(
        "pods of three seconds hide the offender",
        "pressure stays",
        plan(
            over(600.0, "immich-ml", 2800),
            (590.0, "churn", {"name": "android-emulator", "lives": 3.0, "seconds": 1800.0, "pods": 8}),
            minutes=30,
        ),
    ),
    Case(
        "one namespace that refuses stops every gate",
        "gate stays open",
        plan(
            (400.0, "idle", {"name": "frigate", "mib": 1600, "seconds": 900.0}),
            (400.0, "demand", {"name": "ebook2audiobook", "seconds": 7200.0}),
            (800.0, "hidden", {"namespace": "tts", "status": 403, "seconds": 3600.0}),
            minutes=30,
        ),
    ),
    Case(
        "a process that NVML cannot tell blinds the other device",
        "pressure stays",
        plan(
            (500.0, "exporter", {"node": "k8s-node1", "kind": "partial", "seconds": 3600.0}),
            over(600.0, "immich-ml", 9500),
            over(600.0, "llama-swap", 9500),
            minutes=30,
            shape=TWO_DEVICES,
        ),
    ),
    Case(
        "a node whose write is refused keeps the next without capacity",
        "capacity gone",
        plan(
            (600.0, "node_patch", {"node": "k8s-node1", "status": 422, "seconds": 3600.0}),
            (700.0, "reboots", {"node": "k8s-node1", "forgets": True}),
            (700.0, "reboots", {"node": "k8s-node2", "forgets": True}),
            minutes=30,
            shape=TWO_NODES,
        ),
    ),
    Case(
        "a label that flaps takes capacity below what is bound",
        "capacity below what is bound",
        plan((600.0, "label", {"node": "k8s-node1", "key": "present", "seconds": 60.0}), minutes=20),
    ),
    Case(
        "a node whose label flaps is protected by nobody, and that is told",
        "a stray node is not told of",
        plan(
            (590.0, "label", {"node": "k8s-node1", "key": "present", "seconds": 500.0, "excuse": False}),
            over(600.0, "immich-ml", 2800),
            minutes=20,
        ),
    ),
    Case(
        "memory of a queue is lent, and the job that Kueue admits waits for it",
        "admitted job waits",
        plan(
            (400.0, "demand", {"name": "ebook2audiobook", "seconds": 7200.0}),
            (400.0, "demand", {"name": "ytdlp", "seconds": 7200.0}),
            (900.0, "job", {"name": "train", "mib": 1500, "over": 0, "seconds": 3600.0, "rank": 100}),
            minutes=30,
            shape=Shape(stack="queue"),
        ),
    ),
    Case(
        "a job beyond its quota has what another that Kueue admitted waits for",
        "admitted job waits",
        plan(
            (600.0, "job", {"name": "first", "mib": 500, "over": 2500, "seconds": 3600.0, "rank": 1000}),
            (1450.0, "job", {"name": "second", "mib": 500, "over": 0, "seconds": 3600.0, "rank": 1000}),
            minutes=35,
            shape=Shape(stack="queue"),
        ),
    ),
    Case(
        "a JobSet beyond its quota is admitted again after its recycle",
        "queued work stays active",
        plan(
            (600.0, "job", {"name": "first", "mib": 500, "over": 850, "seconds": 3600.0, "rank": 1000,
                            "kind": "JobSet"}),
            (1450.0, "job", {"name": "second", "mib": 500, "over": 0, "seconds": 3600.0, "rank": 1000}),
            minutes=35,
            shape=Shape(stack="queue"),
        ),
    ),
    Case(
        "an extender that restarts forgets whom it held back",
        "seat waits",
        plan(
            (600.0, "burst", {"name": "immich-server", "mib": 2500, "seconds": 5400.0, "lies": True}),
            (1370.0, "leak", {"name": "llama-swap", "mib": 500, "seconds": 5400.0, "lies": True}),
            (1880.0, "extender_restarts", {"seconds": 120.0}),
            minutes=75,
            shape=Shape(outside_mib=800),
        ),
    ),
    Case(
        "a recycle that was written down and not done spares the offender",
        "pressure stays",
        plan(
            (645.0, "demand", {"name": "ytdlp", "seconds": 600.0}),
            (769.9, "slow_api", {"latency": 3.0, "seconds": 200.0}),
            over(802.4, "llama-swap", 4000, 600.0),
            minutes=30,
            shape=Shape(outside_mib=300),
            seed=9,
        ),
    ),
    Case(
        "a pod that is 36 MiB over its budget is evicted for a shortfall of 116",
        "evicted in vain",
        plan(
            *(
                over(600.0, name, mib)
                for name, mib in (
                    ("immich-ml", 850), ("llama-swap", 546), ("frigate", 54), ("immich-server", 571),
                    ("portal-stt", 36),
                )
            ),
            minutes=40,
            shape=Shape(outside_mib=414),
        ),
    ),
    Case(
        "the finalizer goes while a node still advertises",
        "finalizer gone too early",
        plan(
            (580.0, "node_patch", {"node": "k8s-node1", "status": 422, "seconds": 600.0}),
            (600.0, "destroys", {"seconds": 300.0}),
            minutes=20,
        ),
    ),
    Case(
        "a stale reading is served as fresh",
        "stale reading served",
        plan((600.0, "exporter", {"node": "k8s-node1", "kind": "stalls", "seconds": 300.0}), minutes=15),
    ),
    Case(
        "a clock ahead of the API server's is believed",
        "acted with a wrong clock",
        plan(
            (500.0, "clock", {"worker": "worker-1", "ahead": 400.0, "seconds": 1800.0}),
            (500.0, "clock", {"worker": "worker-2", "ahead": 400.0, "seconds": 1800.0}),
            over(600.0, "immich-ml", 2800),
            minutes=20,
        ),
    ),
)  # fmt: skip
