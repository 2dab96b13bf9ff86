"""The faults and the tenants' acts that a plan may contain."""

from simulation.api import Object
from simulation.devices import Machine
from tenancy.names import LABEL_GPU_COUNT, LABEL_GPU_MEMORY
from tests.simulation.plan import ACTS, Entry, Plan, act, later
from tests.simulation.system import EVICTION_SECONDS, KUBELET_SECONDS, System

BESIDE_SECONDS = 0.05  # the duration of each request in seconds, so that the requests of two runs are mixed


def carry_out(system: System, plan: Plan) -> None:
    """Adds the plan's entries to the simulation."""
    for entry in plan.entries:

        def begin(entry: Entry = entry) -> None:
            system.world.say("plan", str(entry))
            system.world.see(f"plan: {entry.what}")
            system.world.stir()
            ACTS[entry.what](system, **entry.given)

        system.world.at(entry.at, begin)


# Tenants


@act
def restart(system: System, name: str, pulls: float = 2.0) -> None:
    workload = system.workload(name)
    workload.pulls = pulls
    system.tenants.restart(workload)


@act
def burst(system: System, name: str, mib: int, seconds: float, lies: bool = False) -> None:
    """The workload uses `mib` more. If `lies` is True, the workload's next pod also uses more."""
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

    later(system, seconds, undo, f"burst {name}")


@act
def idle(system: System, name: str, mib: int, seconds: float) -> None:
    """The workload uses `mib` less than usual for `seconds`."""
    burst(system, name, -mib, seconds)


@act
def leak(system: System, name: str, mib: int, seconds: float, lies: bool = False) -> None:
    """The workload uses `mib` more every 10 s until it is recycled.

    If `lies` is True, the workload's next pod also leaks.
    """
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
        system.world.after(every, lambda each=each: system.kubelets.crash(each))  # type: ignore[misc]
    later(system, seconds, lambda: setattr(workload, "crashes", None), f"crash_loop {name}")


@act
def slow_end(system: System, name: str, grace: int, seconds: float) -> None:
    """The workload's pods need `grace` seconds to end, and their grace period is as long."""
    workload = system.workload(name)
    workload.grace, workload.drains = grace, float(grace)
    for pod in [*system.server.pods.values()]:
        if system.tenants.of(pod) is workload and "deletionTimestamp" not in pod["metadata"]:
            system.server.put_pod({**pod, "spec": {**pod["spec"], "terminationGracePeriodSeconds": grace}})

    def undo() -> None:
        workload.grace, workload.drains = 30, 3.0

    later(system, seconds, undo, f"slow_end {name}")


@act
def blocks(system: System, name: str, seconds: float) -> None:
    """A PodDisruptionBudget refuses all evictions of the workload's pods."""
    workload = system.workload(name)
    system.server.budgets[workload.owner] = True
    system.violations.block(name, seconds)
    later(system, seconds, lambda: system.server.budgets.pop(workload.owner, None), f"blocks {name}")


@act
def refuses(system: System, name: str, status: int, seconds: float) -> None:
    """Evictions of the workload's pods fail, because of two PodDisruptionBudgets (500), or because of a webhook or RBAC
    (403).
    """
    workload = system.workload(name)
    cause = "This pod has more than one PodDisruptionBudget" if status == 500 else "forbidden"
    part = f"POST /api/v1/namespaces/{workload.namespace}/pods/{name}*/eviction"
    system.violations.block(name, seconds)
    _refuse(system, part, (cause, status), seconds, f"refuses {name}")


@act
def hidden(system: System, namespace: str, status: int, seconds: float) -> None:
    """Each request in the namespace fails, including Events, because the namespace is terminating or RBAC is wrong."""
    system.violations.hidden[namespace] = system.world.now + seconds
    for workload in system.tenants.workloads.values():
        if workload.namespace == namespace:
            system.violations.block(workload.name, seconds)
    _refuse(system, f"/namespaces/{namespace}/", ("forbidden", status), seconds, f"hidden {namespace}")


@act
def churn(system: System, name: str, lives: float, seconds: float, pods: int = 3) -> None:
    """The workload has `pods` pods. Each pod ends after `lives` seconds and is replaced."""
    workload = system.workload(name)
    workload.replicas = pods
    system.tenants.scaled(workload)
    workload.lives, pulls, workload.pulls = lives, workload.pulls, 0.5
    for each in system.kubelets.of(workload):
        system.world.after(lives, lambda uid=each.uid: system.kubelets.finish(uid))  # type: ignore[misc]

    def undo() -> None:
        workload.lives, workload.pulls, workload.replicas = None, pulls, 1
        system.tenants.scaled(workload)

    later(system, seconds, undo, f"churn {name}")


@act
def demand(system: System, name: str, seconds: float, over: int = 0) -> None:
    """An on-demand workload has demand, and uses `over` MiB beyond its need."""
    gate, workload = system.gates[name], system.workload(name)
    workload.over_mib, workload.lies = over, bool(over)
    url = getattr(gate.demand, "url", "")
    probe = next((probe for host, probe in system.probes.items() if host in url), None)
    if probe is None:
        return
    probe.pending += 1

    def undo() -> None:
        probe.pending -= 1
        system.world.timers.append(system.world.now + gate.longest_idle_seconds)

    later(system, seconds, undo, f"demand {name}")


@act
def job(system: System, name: str, *, mib: int, over: int, seconds: float, rank: int) -> None:
    """team-a submits a Job that uses `over` MiB more than it requests."""
    if mib <= system.kueue.quota_mib and name not in system.kueue.jobs:
        system.kueue.submit(name, "team-a", mib=mib, takes_mib=mib + over, seconds=seconds, rank=rank)


@act
def outsider(system: System, node: str, mib: int, seconds: float) -> None:
    """A process outside pods uses memory of the node's first device."""
    card = system.hardware.machines[node].cards[0]
    taken = min(mib, max(card.free_mib, 0))
    card.outside_mib += taken

    def undo() -> None:
        card.outside_mib -= taken
        system.kubelets.freed(card)

    later(system, seconds, undo, f"outsider {node}")


# The API


@act
def api(system: System, kind: str, odds: float, seconds: float) -> None:
    """Each request fails with the probability `odds`. `kind` is "lost", "doubled", "silent" or an HTTP status."""
    system.server.odds[kind] = odds
    system.violations.disturb("", seconds)
    later(system, seconds, lambda: system.server.odds.pop(kind, None), f"api {kind}")


@act
def lost(system: System, part: str, times: int = 1) -> None:
    """Drops the next responses to requests with `part` in "<agent> <method> <path>"."""
    system.server.lost[part] = times


@act
def slow_api(system: System, latency: float, seconds: float) -> None:
    system.server.slow.append(latency)
    system.violations.disturb("", seconds)
    later(system, seconds, lambda: system.server.slow.remove(latency), "slow_api")


@act
def outage(system: System, seconds: float) -> None:
    system.server.down = True
    system.server.end_watches()
    system.violations.disturb("", seconds)
    later(system, seconds, lambda: setattr(system.server, "down", False), "outage")


@act
def node_patch(system: System, node: str, status: int, seconds: float) -> None:
    """Each write of the node's status fails, because a webhook or the API server's validation refuses the write."""
    system.violations.disturb(node, seconds)
    _refuse(system, f"PATCH /api/v1/nodes/{node}/status", ("on order", status), seconds, f"node_patch {node}")


@act
def watches_break(system: System) -> None:
    system.server.end_watches()


# The agents


@act
def kill(system: System, agent: str, requests: int) -> None:
    """The agent's process is killed after `requests` further requests."""
    system.server.kill[agent] = requests


@act
def twice(system: System, agent: str, seconds: float) -> None:
    """Each run of the agent has a second run at the same time. Each request takes some time, so that the requests of
    the two runs are mixed.
    """
    first = system.crons[agent]
    twin = type(first)(
        name=agent,
        world=system.world,
        server=system.server,
        environ=first.environ,
        overlaps=first.overlaps,
        hosts=first.hosts,
        violated=first.violated,
        scraper=first.scraper,
    )
    system.twins.append(twin)
    system.server.slow.append(BESIDE_SECONDS)
    twin.resume()

    def undo() -> None:
        twin.suspend()
        system.twins.remove(twin)
        system.server.slow.remove(BESIDE_SECONDS)

    later(system, seconds, undo, f"twice {agent}")


@act
def extender_restarts(system: System, seconds: float) -> None:
    system.extender.kill(seconds)
    system.violations.disturb("", seconds, after=30.0)


# Nodes


@act
def node_dies(system: System, node: str, seconds: float) -> None:
    """The node fails. After `seconds`, the node comes back with a reboot."""
    machine = _machine(system, node)
    machine.alive = False
    system.violations.disturb(node, seconds, after=200.0)
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

    later(system, seconds, back, f"node_dies {node}")


@act
def reboots(system: System, node: str, forgets: bool = False, boot: float = 10.0) -> None:
    """All containers of the node restart.

    If `forgets` is True, the Node is created again without the values that agents wrote.
    """
    machine = _machine(system, node)
    _stop_all(system, machine, boot)
    if forgets and machine.cards:
        system.server.remove_node(node)
        system.register(machine)
    system.violations.disturb(node, boot + 20.0, after=60.0)


@act
def label(
    system: System, node: str, key: str, seconds: float, *, value: str | None = None, excuse: bool = True
) -> None:
    """GPU feature discovery removes or changes a label. Without `excuse`, the promises still count.

    The exporter's DaemonSet selects nodes by the pool's labels, so the node has no exporter during this fault.
    """
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
        system.violations.disturb(node, seconds)
    later(system, seconds, lambda: write(before), f"label {node} {key}")


@act
def clock(system: System, worker: str, ahead: float, seconds: float) -> None:
    """The time of day of a node with agents is wrong by `ahead` seconds for some time."""
    machine = _machine(system, worker)
    machine.ahead += ahead
    system.violations.disturb("", seconds)
    later(system, seconds, lambda: setattr(machine, "ahead", 0.0), f"clock {worker}")


@act
def exporter(system: System, node: str, kind: str, seconds: float) -> None:
    """The exporter has a fault.

    `kind` is "gone", "hangs", "frozen", "lies", "fails" (NVML fails) or "partial" (NVML does not report a process's
    memory).
    """
    machine, each = system.hardware.machines[node], system.exporters[node]
    # For "partial", the process is on the first device. The readings of the other devices are complete.
    system.violations.disturb(machine.cards[0].uuid if kind == "partial" else node, seconds)
    if kind == "fails":
        machine.failing = "NVML: GPU is lost"
    elif kind == "partial":
        machine.unknown = 1
    else:
        each.trouble = kind

    def undo() -> None:
        machine.failing, machine.unknown, each.trouble = "", 0, ""

    later(system, seconds, undo, f"exporter {kind} {node}")


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


def _refuse(system: System, part: str, answer: tuple[str, int], seconds: float, what: str) -> None:
    """Refuses requests with `part` in "<method> <path>" for some time, with the cause and the status in `answer`."""
    system.server.refused[part] = answer
    later(system, seconds, lambda: system.server.refused.pop(part, None), what)
