"""Defines the faults and the acts of tenants that a plan can contain."""

from tenancy.names import GATE, LABEL_GPU_COUNT, LABEL_GPU_MEMORY, SYSTEM_NAMESPACE, journal
from tests.simulation.hostile import ANSWERS, TRICKS
from tests.simulation.kueue import KINDS, Job
from tests.simulation.model.api import Object
from tests.simulation.model.devices import Machine
from tests.simulation.model.tenants import DEPLOYMENTS
from tests.simulation.plan import ACTS, Entry, Plan, act, later
from tests.simulation.system import EVICTION_SECONDS, KUBELET_SECONDS, LEDGER_PATH, System

STALE_SECONDS = 17.0  # If NVML does not answer for this long, the last reading is stale.
BESIDE_SECONDS = 0.05


def carry_out(system: System, plan: Plan) -> None:
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
    burst(system, name, -mib, seconds)


@act
def leak(system: System, name: str, mib: int, seconds: float, lies: bool = False) -> None:
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
    workload = system.workload(name)
    workload.grace, workload.drains = grace, float(grace)
    for pod in [*system.server.pods.values()]:
        if system.tenants.of(pod) is workload and "deletionTimestamp" not in pod["metadata"]:
            system.server.put_pod({**pod, "spec": {**pod["spec"], "terminationGracePeriodSeconds": grace}})

    def undo() -> None:
        workload.grace, workload.drains = 30, 3.0

    later(system, seconds, undo, f"slow_end {name}")


@act
def blocks(system: System, name: str, seconds: float, new: bool = False) -> None:
    workload = system.workload(name)
    system.server.budgets[workload.owner] = True
    path = system.put_budget(workload, {"app": name}, {} if new else {"disruptionsAllowed": 0})

    def undo() -> None:
        system.server.budgets.pop(workload.owner, None)
        system.server.remove(path)

    later(system, seconds, undo, f"blocks {name}")


@act
def refuses(system: System, name: str, status: int, seconds: float) -> None:
    workload = system.workload(name)
    cause = "This pod has more than one PodDisruptionBudget" if status == 500 else "forbidden"
    part = f"POST /api/v1/namespaces/{workload.namespace}/pods/{name}*/eviction"
    if status != 500:  # the watchdog overrules PodDisruptionBudgets
        system.violations.block(name, seconds)
    _refuse(system, part, (cause, status), seconds, f"refuses {name}")


@act
def hidden(system: System, namespace: str, status: int, seconds: float) -> None:
    system.violations.hidden[namespace] = system.world.now + seconds
    for workload in system.tenants.workloads.values():
        if workload.namespace == namespace:
            system.violations.block(workload.name, seconds)
    _refuse(system, f"/namespaces/{namespace}/", ("forbidden", status), seconds, f"hidden {namespace}")


@act
def churn(system: System, name: str, lives: float, seconds: float, pods: int = 3) -> None:
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
def job(system: System, name: str, *, mib: int, over: int, seconds: float, rank: int, kind: str = "Job") -> None:
    kueue, pods = system.kueue, sum(KINDS[kind].pods.values())
    if mib <= kueue.quota_mib and name not in kueue.jobs:
        parts = kueue.work(name, "team-a", kind, mib // pods, mib // pods + over)
        for part in parts:
            part.priority = rank
        kueue.submit(Job(name=name, namespace="team-a", kind=KINDS[kind], parts=parts, seconds=seconds, rank=rank))


@act
def hostile(system: System, name: str, trick: str, seconds: float) -> None:
    workload = system.workload(name)
    plain = workload.dress
    workload.dress = TRICKS[trick]
    for pod in system.tenants.pods(workload):
        if "deletionTimestamp" not in pod["metadata"]:
            system.server.put_pod(workload.dress(pod))
    system.world.after(seconds / 2, lambda: system.tenants.restart(workload))
    later(system, seconds, lambda: setattr(workload, "dress", plain), f"hostile {name}")


@act
def hostile_probe(system: System, name: str, answer: str, seconds: float) -> None:
    url = getattr(system.gates[name].demand, "url", "")
    probe = next((probe for host, probe in system.probes.items() if host in url), None)
    if probe is None:
        return
    probe.answer = ANSWERS[answer]

    def undo() -> None:
        probe.answer = None

    later(system, seconds, undo, f"hostile_probe {name}")


@act
def scales(system: System, name: str, replicas: int, seconds: float) -> None:
    workload, path = system.workload(name), DEPLOYMENTS.format(*system.workload(name).owner)

    def write(wanted: int) -> None:
        found = system.server.objects[path]
        metadata = {**found["metadata"], "generation": found["metadata"].get("generation", 1) + 1}
        metadata["managedFields"] = [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
        system.server.put(path, {**found, "metadata": metadata, "spec": {**found["spec"], "replicas": wanted}})

    former = system.pods_of(name)
    if former == replicas or name in system.foreign:
        return
    system.foreign[name] = system.world.now
    write(replicas)

    def undo() -> None:
        write(former)
        del system.foreign[name]
        system.world.timers.append(system.world.now + system.gates[name].longest_idle_seconds)

    later(system, seconds, undo, f"scales {workload.name}")


@act
def outsider(system: System, node: str, mib: int, seconds: float) -> None:
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
    system.server.odds[kind] = odds
    system.violations.disturb("", seconds)
    later(system, seconds, lambda: system.server.odds.pop(kind, None), f"api {kind}")


@act
def lost(system: System, part: str, times: int = 1) -> None:
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
    system.violations.disturb(node, seconds)
    _refuse(system, f"PATCH /api/v1/nodes/{node}/status", ("on order", status), seconds, f"node_patch {node}")


@act
def overwrites(system: System, node: str, seconds: float) -> None:
    system.violations.disturb(node, seconds)
    key, ends = system.stack.ledger.names.gpumem, system.world.now + seconds

    def hear(kind: str, found: Object) -> None:
        is_node = found.get("kind") == "Node" and found["metadata"]["name"] == node and kind != "DELETED"
        if is_node and system.world.now < ends and key in found["status"]["allocatable"]:
            held = {part: {**found["status"][part]} for part in ("capacity", "allocatable")}
            for each in held.values():
                each.pop(key)
            system.server.put_node({**found, "status": {**found["status"], **held}})

    system.server.hears.append(hear)
    later(system, seconds, lambda: system.server.hears.remove(hear), f"overwrites {node}")


@act
def undated(system: System, seconds: float) -> None:
    """A proxy removes the header Date from all responses of the API server."""
    system.server.undated = True
    later(system, seconds, lambda: setattr(system.server, "undated", False), "undated")


@act
def watches_break(system: System) -> None:
    system.server.end_watches()


# The agents


@act
def kill(system: System, agent: str, requests: int) -> None:
    system.server.kill[agent] = requests


@act
def forgets(system: System) -> None:
    if system.foreign:
        return
    path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{journal(GATE)}"
    system.server.put(path, {**system.server.objects[path], "data": {}})
    system.invariants.gates.start_over()


@act
def twice(system: System, agent: str, seconds: float) -> None:
    first = system.crons[agent]
    twin = type(first)(
        name=agent,
        world=system.world,
        server=system.server,
        environ=first.environ,
        overlaps=first.overlaps,
        hosts=first.hosts,
        violated=first.violated,
        failed=first.failed,
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


@act
def leader_changes(system: System, seconds: float, killed: bool = False) -> None:
    former = system.extender
    following = system.extenders[(system.extenders.index(former) + 1) % len(system.extenders)]
    system.scheduler.verb = None
    system.violations.disturb("", seconds, after=30.0)
    if killed:
        former.kill(seconds + 20.0)
    later(system, seconds, lambda: system.lead(following), "leader_changes")


# Nodes


@act
def node_dies(system: System, node: str, seconds: float) -> None:
    machine = _machine(system, node)
    machine.alive = False
    system.violations.disturb(node, seconds, after=200.0)
    if not any(worker.alive for worker in system.workers):
        system.violations.disturb("", seconds)
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
    full = {"memory": LABEL_GPU_MEMORY, "count": LABEL_GPU_COUNT, "present": "nvidia.com/gpu.present"}[key]

    def write(shown: str | None) -> None:
        found = system.server.nodes[node]
        labels = {k: v for k, v in found["metadata"]["labels"].items() if k != full}
        if shown is not None:
            labels[full] = shown
        system.server.put_node({**found, "metadata": {**found["metadata"], "labels": labels}})
        system.world.after(2.0, lambda: system.select_exporter(node))

    before = _machine(system, node).labels.get(full)
    write(value)
    if excuse:
        system.violations.disturb(node, seconds)
    later(system, seconds, lambda: write(before), f"label {node} {key}")


@act
def clock(system: System, worker: str, ahead: float, seconds: float) -> None:
    machine = _machine(system, worker)
    machine.ahead += ahead
    system.clocks_changed_at = system.world.now
    system.violations.disturb("", seconds)

    def undo() -> None:
        machine.ahead, system.clocks_changed_at = 0.0, system.world.now

    later(system, seconds, undo, f"clock {worker}")


@act
def clock_of_the_api(system: System, ahead: float, seconds: float) -> None:
    system.server.ahead, system.clocks_changed_at = ahead, system.world.now
    system.violations.disturb("", seconds)

    def undo() -> None:
        system.server.ahead, system.clocks_changed_at = 0.0, system.world.now

    later(system, seconds, undo, "clock_of_the_api")


@act
def destroys(system: System, seconds: float) -> None:
    ledger = system.server.objects.get(LEDGER_PATH)
    if ledger is None or "deletionTimestamp" in ledger["metadata"]:
        return
    system.violations.disturb("", seconds, after=300.0)
    deleted = {**ledger["metadata"], "deletionTimestamp": system.server.time().strftime("%Y-%m-%dT%H:%M:%SZ")}
    system.server.put(LEDGER_PATH, {**ledger, "metadata": deleted})

    def again() -> None:
        if LEDGER_PATH in system.server.objects:
            system.violations.disturb("", 60.0, after=300.0)
            system.world.after(60.0, again)
            return
        system.server.put(LEDGER_PATH, ledger)

    later(system, seconds, again, "destroys")


@act
def exporter(system: System, node: str, kind: str, seconds: float) -> None:
    machine, each = system.hardware.machines[node], system.exporters[node]
    system.violations.disturb(machine.cards[0].uuid if kind == "partial" else node, seconds)
    if kind == "fails":
        machine.failing = "NVML: GPU is lost"
    elif kind == "partial":
        machine.unknown = 1
    elif kind == "stalls":
        machine.hangs = True
        system.world.after(STALE_SECONDS, system.world.stir)
    elif kind == "loses":
        machine.lost = frozenset({len(machine.cards) - 1})
    else:
        each.trouble = kind
    if kind != "partial" and (kind != "loses" or len(machine.cards) == 1):
        each.untrusted_since = each.untrusted_since or system.world.now

    def undo() -> None:
        machine.failing, machine.unknown, each.trouble = "", 0, ""
        machine.hangs, machine.lost, each.untrusted_since = False, frozenset(), None

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
    system.server.refused[part] = answer
    later(system, seconds, lambda: system.server.refused.pop(part, None), what)
