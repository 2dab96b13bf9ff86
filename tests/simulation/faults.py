"""What goes wrong, and what tenants do: each as an entry of a plan, drawn by a seed or written by hand."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from simulation.api import Object
from simulation.devices import Machine
from tenancy.names import GATE, LABEL_GPU_COUNT, LABEL_GPU_MEMORY, RECONCILE, WATCHDOG, journal
from tests.simulation.system import EVICTION_SECONDS, KUBELET_SECONDS, Shape, System

DAY = 86_400.0
BESIDE_SECONDS = 0.05  # of a request, so that two runs interleave
CRONS = (RECONCILE, WATCHDOG, GATE)


@dataclass(frozen=True)
class Entry:
    """At that second; `what` is a key of ACTS, whose arguments are `given`."""

    at: float
    what: str
    given: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.what} {' '.join(f'{key}={value}' for key, value in self.given.items())}"


@dataclass(frozen=True)
class Plan:
    """A shape, and what happens there; `days` may be a fraction."""

    shape: Shape
    entries: tuple[Entry, ...]
    days: float = 1.0
    seed: int = 0


Act = Callable[..., None]
ACTS: dict[str, Act] = {}


def act(run: Act) -> Act:
    ACTS[run.__name__] = run
    return run


def carry_out(system: System, plan: Plan) -> None:
    """Has the plan happen."""
    for entry in plan.entries:

        def begin(entry: Entry = entry) -> None:
            system.world.say("plan", str(entry))
            system.world.see(f"plan: {entry.what}")
            system.world.stir()
            ACTS[entry.what](system, **entry.given)

        system.world.at(entry.at, begin)


def _later(system: System, seconds: float, undo: Callable[[], object], what: str) -> None:
    def end() -> None:
        undo()
        system.world.say("plan", f"end of {what}")
        system.world.stir()

    system.world.after(seconds, end)


# Tenants


@act
def restart(system: System, name: str, pulls: float = 2.0) -> None:
    workload = system.workload(name)
    workload.pulls = pulls
    system.tenants.restart(workload)


@act
def burst(system: System, name: str, mib: int, seconds: float, lies: bool = False) -> None:
    """So much beyond its steady use; a liar's next pod as well."""
    workload = system.workload(name)
    workload.over_mib, workload.lies = mib, lies
    for each in system.kubelets.of(workload):
        each.over_mib = mib
    system.grow(workload)

    def undo() -> None:
        workload.over_mib, workload.lies = 0, False
        for each in system.kubelets.of(workload):
            each.over_mib = 0
        system.grow(workload)

    _later(system, seconds, undo, f"burst {name}")


@act
def idle(system: System, name: str, mib: int, seconds: float) -> None:
    """It gives back so much of what it has, and wants it again later: within its seat all the time."""
    burst(system, name, -mib, seconds)


@act
def leak(system: System, name: str, mib: int, seconds: float, lies: bool = False) -> None:
    """So much more each 10 s, until it is recycled; the next pod leaks again where it `lies`."""
    workload = system.workload(name)
    end = system.world.now + seconds
    first = {each.uid for each in system.kubelets.of(workload)}
    every = max(10.0, seconds / 60)

    def more() -> None:
        if system.world.now >= end:
            return
        full = False
        for each in system.kubelets.of(workload):
            if each.loaded and not each.ends and (lies or each.uid in first):
                if each.used_mib >= each.wanted_mib:
                    each.over_mib += round(mib * every / 10)
                system.kubelets.settle(each)
                full = full or each.used_mib < each.wanted_mib
        system.world.after(20 * every if full else every, more)

    more()


@act
def crash_loop(system: System, name: str, every: float, seconds: float) -> None:
    workload = system.workload(name)
    workload.crashes = every
    for each in system.kubelets.of(workload):
        system.world.after(every, lambda each=each: system.kubelets._crash(each))  # type: ignore[misc]
    _later(system, seconds, lambda: setattr(workload, "crashes", None), f"crash_loop {name}")


@act
def slow_end(system: System, name: str, grace: int, seconds: float) -> None:
    """Its pods from now on are given so long to end, and need all of it."""
    workload = system.workload(name)
    workload.grace, workload.drains = grace, float(grace)
    for key, pod in [*system.server.pods.items()]:
        if system.tenants.of(pod) is workload and "deletionTimestamp" not in pod["metadata"]:
            system.server.put_pod({**pod, "spec": {**pod["spec"], "terminationGracePeriodSeconds": grace}})
            assert key

    def undo() -> None:
        workload.grace, workload.drains = 30, 3.0

    _later(system, seconds, undo, f"slow_end {name}")


@act
def blocks(system: System, name: str, seconds: float) -> None:
    """A PodDisruptionBudget that allows nothing."""
    workload = system.workload(name)
    system.server.budgets[workload.owner] = True
    system.invariants.block(name, seconds)
    _later(system, seconds, lambda: system.server.budgets.pop(workload.owner, None), f"blocks {name}")


@act
def refuses(system: System, name: str, status: int, seconds: float) -> None:
    """Evictions of its pods are answered with an error: two disruption budgets (500), a webhook or RBAC (403)."""
    workload = system.workload(name)
    part = f"POST /api/v1/namespaces/{workload.namespace}/pods/{name}*/eviction"
    cause = "This pod has more than one PodDisruptionBudget" if status == 500 else "forbidden"
    system.server.network.refused[part] = (cause, status)
    system.invariants.block(name, seconds)
    _later(system, seconds, lambda: system.server.network.refused.pop(part, None), f"refuses {name}")


@act
def hidden(system: System, namespace: str, status: int, seconds: float) -> None:
    """Whatever is asked of the namespace is answered with an error, Events as well: it terminates, or RBAC is wrong."""
    part = f"/namespaces/{namespace}/"
    system.server.network.refused[part] = ("forbidden", status)
    system.invariants.hidden[namespace] = system.world.now + seconds
    for workload in system.tenants.workloads.values():
        if workload.namespace == namespace:
            system.invariants.block(workload.name, seconds)
    _later(system, seconds, lambda: system.server.network.refused.pop(part, None), f"hidden {namespace}")


@act
def churn(system: System, name: str, lives: float, seconds: float, pods: int = 3) -> None:
    """So many pods that end by themselves after so long, and others come."""
    workload = system.workload(name)
    workload.replicas = pods
    system.tenants.scaled(workload)
    workload.lives, pulls, workload.pulls = lives, workload.pulls, 0.5
    for each in system.kubelets.of(workload):
        system.world.after(lives, lambda uid=each.uid: system.kubelets._finish(uid))  # type: ignore[misc]

    def undo() -> None:
        workload.lives, workload.pulls, workload.replicas = None, pulls, 1
        system.tenants.scaled(workload)

    _later(system, seconds, undo, f"churn {name}")


@act
def demand(system: System, name: str, seconds: float, over: int = 0) -> None:
    """Work for an on-demand tenant, which takes so much beyond its need."""
    gate, workload = system.gates[name], system.workload(name)
    workload.over_mib, workload.lies = over, bool(over)
    url = getattr(gate.demand, "url", "")
    probe = next((probe for host, probe in system.probes.items() if host in url), None)
    if probe is None:
        return
    probe.pending += 1

    def undo() -> None:
        probe.pending -= 1
        system.world.timers.append(system.world.now + gate.grace_seconds)

    _later(system, seconds, undo, f"demand {name}")


@act
def job(system: System, name: str, *, mib: int, over: int, seconds: float, rank: int) -> None:
    """A queued Job of team-a, which takes so much more than it declares."""
    if mib <= system.kueue.quota_mib and name not in system.kueue.jobs:
        system.kueue.submit(name, "team-a", mib=mib, takes_mib=mib + over, seconds=seconds, rank=rank)


@act
def outsider(system: System, node: str, mib: int, seconds: float) -> None:
    """A process that is nobody's takes memory of the node's first device."""
    card = system.hardware.machines[node].cards[0]
    taken = min(mib, max(card.free_mib, 0))
    card.outside_mib += taken

    def undo() -> None:
        card.outside_mib -= taken
        system.kubelets._freed(card)

    _later(system, seconds, undo, f"outsider {node}")


# The API


@act
def api(system: System, kind: str, odds: float, seconds: float) -> None:
    """Each request fails so, by that chance: lost, doubled, silent, or a status."""
    system.server.network.odds[kind] = odds
    system.invariants.disturb("", seconds)
    _later(system, seconds, lambda: system.server.network.odds.pop(kind, None), f"api {kind}")


@act
def lost(system: System, part: str, times: int = 1) -> None:
    """The answers to the next requests whose "<agent> <method> <path>" has that part."""
    system.server.network.lost[part] = times


@act
def slow_api(system: System, latency: float, seconds: float) -> None:
    system.server.network.slow.append(latency)
    system.invariants.disturb("", seconds)
    _later(system, seconds, lambda: system.server.network.slow.remove(latency), "slow_api")


@act
def outage(system: System, seconds: float) -> None:
    system.server.network.down = True
    system.server.end_watches()
    system.invariants.disturb("", seconds)
    _later(system, seconds, lambda: setattr(system.server.network, "down", False), "outage")


@act
def node_patch(system: System, node: str, status: int, seconds: float) -> None:
    """Each write of the node's status is refused: by a webhook, or as invalid."""
    part = f"PATCH /api/v1/nodes/{node}/status"
    system.server.network.refused[part] = ("on order", status)
    system.invariants.disturb(node, seconds)
    _later(system, seconds, lambda: system.server.network.refused.pop(part, None), f"node_patch {node}")


@act
def watches_break(system: System) -> None:
    system.server.end_watches()


# The agents


@act
def kill(system: System, agent: str, requests: int) -> None:
    """Its process ends before its next request but so many."""
    system.server.network.kill[agent] = requests


@act
def twice(system: System, agent: str, seconds: float) -> None:
    """A second run beside each, at the same time: requests take a moment, so that they interleave."""
    first = system.crons[agent]
    twin = type(first)(
        name=agent,
        world=system.world,
        server=system.server,
        environ=first.environ,
        overlaps=first.overlaps,
        hosts=first.hosts,
        violated=first.violated,
    )
    system.twins.append(twin)
    system.server.network.slow.append(BESIDE_SECONDS)
    twin.resume()

    def undo() -> None:
        twin.generation += 1
        twin.run = None
        system.twins.remove(twin)
        system.server.network.slow.remove(BESIDE_SECONDS)

    _later(system, seconds, undo, f"twice {agent}")


@act
def extender_restarts(system: System, seconds: float) -> None:
    system.extender.kill(seconds)
    system.invariants.disturb("", seconds, after=30.0)


# Nodes


@act
def node_dies(system: System, node: str, seconds: float) -> None:
    """Its kubelet falls silent; then it comes back, rebooted."""
    machine = _machine(system, node)
    machine.alive = False
    system.invariants.disturb(node, seconds, after=200.0)
    world = system.world

    def not_ready() -> None:
        if not machine.alive:
            machine.ready = False

    def evict() -> None:
        if not machine.alive:
            for pod in _pods_on(system, node):
                system.server.delete_pod(pod)

    world.after(KUBELET_SECONDS, not_ready)
    world.after(KUBELET_SECONDS + EVICTION_SECONDS, evict)

    def back() -> None:
        machine.alive = machine.ready = True
        _stop_all(system, machine)
        system.kubelets.come_back(node)
        for agent in system.crons.values():
            if agent.stuck and agent.host is machine:
                agent.stuck, agent.run = False, None

    _later(system, seconds, back, f"node_dies {node}")


@act
def reboots(system: System, node: str, forgets: bool = False, boot: float = 10.0) -> None:
    """All its containers end and start again; its Node may be made anew, without what was written on it."""
    machine = _machine(system, node)
    _stop_all(system, machine, boot)
    if forgets and machine.cards:
        system.server.remove_node(node)
        system.register(machine)
    system.invariants.disturb(node, boot + 20.0, after=60.0)


@act
def label(
    system: System, node: str, key: str, seconds: float, *, value: str | None = None, excuse: bool = True
) -> None:
    """Feature discovery takes a label away, or shows another value. Without `excuse` promises count all the same. The
    exporter's DaemonSet selects by the pool's labels: its pod goes with them, and comes back."""
    full = {"memory": LABEL_GPU_MEMORY, "count": LABEL_GPU_COUNT, "present": "nvidia.com/gpu.present"}[key]

    def write(shown: str | None) -> None:
        found = system.server.nodes[node]
        labels = {k: v for k, v in found["metadata"]["labels"].items() if k != full}
        if shown is not None:
            labels[full] = shown
        system.server.put_node({**found, "metadata": {**found["metadata"], "labels": labels}})
        system.world.after(2.0, lambda: system.select_exporter(node))

    before = system.server.nodes[node]["metadata"]["labels"].get(full)
    write(value)
    if excuse:
        system.invariants.disturb(node, seconds)
    _later(system, seconds, lambda: write(before), f"label {node} {key}")


@act
def clock(system: System, worker: str, ahead: float, seconds: float) -> None:
    """The time of day of a node on which agents run jumps, and later back."""
    machine = _machine(system, worker)
    machine.ahead += ahead
    system.invariants.disturb("", seconds)
    _later(system, seconds, lambda: setattr(machine, "ahead", 0.0), f"clock {worker}")


@act
def exporter(system: System, node: str, kind: str, seconds: float) -> None:
    """It is gone, hangs, freezes or lies; NVML fails, or does not tell a process's memory."""
    machine, each = system.hardware.machines[node], system.exporters[node]
    # A process that NVML cannot tell is on the first device: the others' are known.
    system.invariants.disturb(machine.cards[0].uuid if kind == "partial" else node, seconds)
    if kind == "fails":
        machine.failing = "NVML: GPU is lost"
    elif kind == "partial":
        machine.unknown = 1
    else:
        each.trouble = kind

    def undo() -> None:
        machine.failing, machine.unknown, each.trouble = "", 0, ""

    _later(system, seconds, undo, f"exporter {kind} {node}")


def _machine(system: System, name: str) -> Machine:
    found = system.hardware.machines.get(name)
    return found or next(each for each in system.workers if each.name == name)


def _pods_on(system: System, node: str) -> list[Object]:
    return [
        pod
        for pod in system.server.pods.values()
        if pod["spec"].get("nodeName") == node and system.tenants.of(pod) and "deletionTimestamp" not in pod["metadata"]
    ]


def _stop_all(system: System, machine: Machine, boot: float = 10.0) -> None:
    for each in [*system.kubelets.running.values()]:
        if each.machine is machine:
            system.kubelets.stop_process(each)
            wait = boot + 20.0 * system.world.dice.random()
            system.world.after(wait, lambda each=each: system.kubelets.start_process(each))  # type: ignore[misc]


# Drawing


def draw(seed: int, days: float = 1.0, density: float = 6.0) -> Plan:
    """A day of at most so many entries, or a storm of twice as many."""
    dice = Random(seed)  # noqa: S311 (a simulation)
    shapes = (Shape(), Shape(stack="queue"), Shape(stack="two nodes", nodes=2), Shape(stack="two devices", cards=2))
    shape = dice.choices(shapes, weights=(5, 2, 2, 1))[0]
    if dice.random() < 0.3:
        shape = replace(shape, outside_mib=dice.choice((300, 450, 600, 800)))
    entries = sorted(_entries(dice, shape, days, density), key=lambda entry: entry.at)
    return Plan(shape=shape, entries=tuple(entries), days=days, seed=seed)


# Without portal-stt, whose seat the queue has in one of the shapes.
RESIDENTS = ("immich-ml", "llama-swap", "frigate", "immich-server")
GATED = ("ebook2audiobook", "ytdlp")


def _entries(dice: Random, shape: Shape, days: float, density: float) -> Iterator[Entry]:
    begin, span = 900.0, days * DAY - 1800.0
    count = max(1, round(days * density * dice.random()))
    if dice.random() < 0.35:  # all of it within two hours, and more
        begin, span, count = 900.0 + dice.random() * max(span - 7200.0, 0.0), min(7200.0, span), 2 * count
    nodes = [f"k8s-node{number}" for number in range(1, shape.nodes + 1)]
    for name in GATED:
        for _ in range(dice.randrange(3)):
            yield Entry(round(begin + dice.random() * span, 1), "demand", _demand(dice, name))
    if shape.stack == "queue":
        for number in range(dice.randrange(1, 6)):
            over = dice.choice((0, 0, 300, 2500))
            given = {"name": f"job-{number}", "mib": dice.choice((500, 1000, 1500)), "over": over}
            given |= {"seconds": float(dice.choice((300, 1800, 7200))), "rank": dice.choice((100, 1000))}
            yield Entry(round(begin + dice.random() * span, 1), "job", given)
    if dice.random() < 0.2:
        yield from _company(dice, begin, span)
    for _ in range(count):
        at = round(begin + dice.random() * span, 1)
        what, given = _drawn(dice, nodes)
        yield Entry(at, what, given)


def _company(dice: Random, begin: float, span: float) -> Iterator[Entry]:
    """Two exceed their budgets at a time, and of one the other's cure must not depend: each alone is drawn anyway."""
    first, second = dice.sample(RESIDENTS, 2)
    at, seconds = round(begin + dice.random() * max(span - 3600.0, 0.0), 1), 5400.0
    space = {"immich-ml": "immich", "immich-server": "immich"}.get(first, first)
    troubles: Sequence[tuple[str, dict[str, Any]]] = (
        ("refuses", {"name": first, "status": dice.choice((500, 403))}),
        ("blocks", {"name": first}),
        ("slow_end", {"name": first, "grace": 3600}),
        ("hidden", {"namespace": space, "status": 403}),
        ("lost", {"part": f"{WATCHDOG} PATCH"}),
        ("churn", {"name": "android-emulator", "lives": 3.0, "pods": 8}),
    )
    what, given = dice.choice(troubles)
    yield Entry(at, what, given if what == "lost" else {**given, "seconds": seconds})
    for name in (first, second):
        at = round(at + 60.0 + 600.0 * dice.random() ** 2, 1)
        mib = dice.choice((700, 1500, 2500, 4000))
        yield Entry(at, "burst", {"name": name, "mib": mib, "seconds": seconds, "lies": True})


def _demand(dice: Random, name: str) -> dict[str, Any]:
    over = {"over": dice.choice((500, 2000))} if dice.random() < 0.15 else {}
    return {"name": name, "seconds": float(dice.choice((600, 1800, 7200))), **over}


def _drawn(dice: Random, nodes: Sequence[str]) -> tuple[str, dict[str, Any]]:
    name = dice.choice(RESIDENTS)
    seconds = float(dice.choice((60, 200, 600, 1800, 5400)))
    node, worker = dice.choice(nodes), dice.choice(("worker-1", "worker-2"))
    kinds: Sequence[tuple[float, str, dict[str, Any]]] = (
        (10, "restart", {"name": name, "pulls": float(dice.choice((1, 2, 20, 90)))}),
        (8, "idle", {"name": name, "mib": dice.choice((300, 900, 1200)), "seconds": seconds}),
        (8, "burst", {"name": name, "mib": dice.choice((400, 1500, 4000, 9000)), "seconds": seconds}),
        (4, "burst", {"name": name, "mib": dice.choice((1500, 4000, 9000)), "seconds": seconds, "lies": True}),
        (6, "leak", {"name": name, "mib": dice.choice((20, 100, 500)), "seconds": seconds}),
        (2, "leak", {"name": name, "mib": dice.choice((100, 500)), "seconds": seconds, "lies": True}),
        (3, "crash_loop", {"name": name, "every": float(dice.choice((8, 20, 60))), "seconds": seconds}),
        (3, "slow_end", {"name": name, "grace": dice.choice((60, 600, 3600)), "seconds": seconds}),
        (3, "blocks", {"name": name, "seconds": seconds}),
        (3, "refuses", {"name": name, "status": dice.choice((500, 403)), "seconds": seconds}),
        (1, "hidden", {"namespace": dice.choice(("frigate", "ytdlp")), "status": 403, "seconds": seconds}),
        (2, "churn", {"name": "android-emulator", "lives": float(dice.choice((3, 5, 20))), "seconds": 200.0}),
        (3, "outsider", {"node": node, "mib": dice.choice((300, 1500, 4000)), "seconds": seconds}),
        (4, "api", {"kind": dice.choice(("lost", "doubled", "silent", "409", "410", "422", "429", "500")),
                    "odds": dice.choice((0.02, 0.2, 0.6)), "seconds": seconds}),
        (2, "lost", {"part": dice.choice((f"PATCH /api/v1/namespaces/gpu-tenancy-system/configmaps/{journal(WATCHDOG)}",
                                          "/eviction", "/binding", "/scale", "/status"))}),
        (2, "slow_api", {"latency": dice.choice((0.3, 3.0, 12.0)), "seconds": seconds}),
        (2, "outage", {"seconds": seconds}),
        (1, "node_patch", {"node": node, "status": 422, "seconds": seconds}),
        (3, "watches_break", {}),
        (4, "kill", {"agent": dice.choice((*CRONS, "extender")), "requests": dice.randrange(12)}),
        (2, "twice", {"agent": dice.choice((WATCHDOG, GATE)), "seconds": seconds}),
        (2, "extender_restarts", {"seconds": float(dice.choice((5, 30, 120)))}),
        (2, "node_dies", {"node": node, "seconds": seconds}),
        (2, "node_dies", {"node": worker, "seconds": seconds}),
        (3, "reboots", {"node": node, "forgets": dice.random() < 0.5}),
        (3, "label", {"node": node, "key": dice.choice(("memory", "count", "present")), "seconds": seconds}),
        (2, "clock", {"worker": worker, "ahead": float(dice.choice((-400, -20, 20, 400, 7200))), "seconds": seconds}),
        (5, "exporter", {"node": node, "kind": dice.choice(("gone", "hangs", "frozen", "lies", "fails", "partial")),
                         "seconds": seconds}),
    )  # fmt: skip
    chosen = dice.choices(kinds, weights=[weight for weight, _, _ in kinds])[0]
    return chosen[1], chosen[2]
