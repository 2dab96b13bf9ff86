"""Causes faults around agents in real containers. During a fault, no agent acts wrongly.

The device is below its floor, because one pod is over its budget. Without a fault, the watchdog would evict the pod,
and the gate would stop a workload. tests/unit/agents tests faults of the telemetry, and tests/integration/monitoring
the alerts.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

import pytest

from agents.node.pods import NodePod
from tenancy import names
from tenancy.ledger import Ledger
from tests.support.e2e.agents import ended, log_of, start, succeeded
from tests.support.e2e.exporters import pod_of, shown
from tests.support.e2e.hardships import Change, behind_an_api_that_takes, nothing, without_rights
from tests.support.e2e.rollout import GPUMEM, SHARED, SYSTEM, Object, Rollout, cron_job, deployment, pods
from tests.support.e2e.scripted import PORT, Scripted, quick
from tests.support.waiting import becomes, eventually

NODE = "k8s-node1"
RUNAWAY, NEIGHBOUR = ("immich", "immich-ml"), ("frigate", "frigate")
OPEN, CLOSED = "ytdlp", "ebook2audiobook"
APPS = "/apis/apps/v1/namespaces"
FREE_MIB, RUNAWAY_MIB, NEIGHBOUR_MIB = 610, 12_000, 1_800
RUN_SECONDS = 6
QUICK = {"MINIMUM_AGE_SECONDS": "1", "COOL_DOWN_SECONDS": "1"}


@dataclass(frozen=True, kw_only=True)
class Fault:
    words: Mapping[str, str]
    completes: tuple[str, ...] = ()
    change: Change = nothing
    has_room: bool = False
    demand_by_name: bool = False

    def start(self, card: "Card", agent: str) -> str:
        given = {"GATES": json.dumps(gates(card.prod))} if self.demand_by_name else {}
        return card.run(agent, change=self.change, **given)

    def met(self, card: "Card", agent: str, job: str) -> bool:
        return self.words[agent] in said(card, job) and succeeded(card.prod, job) is (agent in self.completes)


ALL = (names.RECONCILE, names.WATCHDOG, names.GATE)
FAULTS = {
    "rights missing": Fault(words=dict.fromkeys(ALL, "403 Forbidden"), change=without_rights),
    "API slow": Fault(words=dict.fromkeys(ALL, "timed out"), change=behind_an_api_that_takes(12)),
    "no DNS": Fault(words={names.GATE: "name resolution"}, completes=(names.GATE,), has_room=True, demand_by_name=True),
}
AT_ONCE, TRIES = 4, 3


@dataclass(frozen=True)
class Card:
    prod: Rollout
    script: Scripted
    ledger: Ledger
    runaway: NodePod
    neighbour: NodePod

    def show(self, *, has_room: bool) -> None:
        runaway_mib, free_mib = (3000, 9000) if has_room else (RUNAWAY_MIB, FREE_MIB)
        uses = ((self.runaway, runaway_mib), (self.neighbour, NEIGHBOUR_MIB))
        self.script.change(metrics=shown(self.ledger, uses, free_mib))

    def state(self) -> Object:
        api = f"/api/v1/namespaces/{SYSTEM}/configmaps"
        return {
            "pods": {found["metadata"]["uid"] for found in self.prod.items(pods(RUNAWAY[0]))},
            "replicas": self.replicas(),
            "recycled": self.prod.get(f"{api}/{names.journal(names.WATCHDOG)}").get("data"),
            "capacity": self.prod.capacity(NODE)[GPUMEM],
        }

    def replicas(self) -> dict[str, int]:
        return {name: self.prod.get(f"{APPS}/{name}/deployments/{name}")["spec"]["replicas"] for name in (OPEN, CLOSED)}

    def run(self, agent: str, *, change: Change = nothing, seconds: int = RUN_SECONDS, **environment: str) -> str:
        own = {names.WATCHDOG: QUICK, names.GATE: {"GATES": json.dumps(wanted(self.prod))}, names.RECONCILE: {}}[agent]
        given = {"EXPORTER_PORT": str(self.script.port)} if agent != names.RECONCILE else {}
        times = {"RUN_SECONDS": str(seconds), "INTERVAL_SECONDS": "2"}
        return start(self.prod, agent, change, **times | own | given | environment)


def wanted(prod: Rollout) -> list[Object]:
    now = datetime.now(UTC)
    between = "-".join(f"{now + timedelta(hours=hours):%H:00}" for hours in (-1, 3))
    demand = {"kind": "window", "between": between, "time_zone": "Etc/UTC"}
    return [{**each, "demand": demand} for each in gates(prod)]


def gates(prod: Rollout) -> list[Object]:
    declared_run = prod.get(cron_job(names.GATE))
    (container,) = declared_run["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    (declared,) = (variable["value"] for variable in container["env"] if variable["name"] == "GATES")
    return [each for each in json.loads(declared) if each["name"] in (OPEN, CLOSED)]


@pytest.fixture(scope="module")
def prod(stack: Rollout) -> Rollout:
    """The stack of test_watchdog, so that one rollout serves both. Its own watchdog finds no exporter."""
    stack.settle(quick)
    return stack


@pytest.fixture(scope="module")
def card(prod: Rollout) -> Iterator[Card]:
    apps = (RUNAWAY, NEIGHBOUR, (OPEN, OPEN), (CLOSED, CLOSED))
    for (namespace, app), mib, replicas in zip(apps, ("3000", "2000", None, None), (1, 1, 1, 0), strict=True):
        manifest = deployment(app, mib, replicas)
        manifest["spec"]["template"]["spec"]["nodeSelector"] = SHARED
        prod.cluster.api.create(f"{APPS}/{namespace}/deployments", manifest)
    runaway, neighbour = (
        pod_of(eventually(lambda a=app: running(prod, *a), f"{app[1]}'s pod runs")) for app in (RUNAWAY, NEIGHBOUR)
    )
    ledger = prod.get(f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.LEDGER}")["data"][names.LEDGER_KEY]
    script = Scripted(prod.cluster, names.node_agent_namespace(SYSTEM), "wrong-acts", PORT + 1)
    script.stand_in_for_the_exporter(NODE, PORT)
    try:
        yield Card(prod, script, Ledger.from_data(json.loads(ledger)), runaway, neighbour)
    finally:
        prod.delete(pods(script.namespace, script.name))
        for namespace, app in apps:
            prod.delete(f"{APPS}/{namespace}/deployments/{app}")


def running(prod: Rollout, namespace: str, app: str) -> Object | None:
    found = prod.items(f"{pods(namespace)}?labelSelector=app%3D{app}")
    alive = (pod for pod in found if "deletionTimestamp" not in pod["metadata"])
    return next((pod for pod in alive if pod["status"].get("phase") == "Running"), None)


@dataclass(frozen=True)
class Runs:
    jobs: Mapping[str, Mapping[str, str]]
    before: Object
    after: Object


@pytest.fixture(scope="module")
def runs(card: Card) -> Runs:
    before, jobs = card.state(), {name: dict[str, str]() for name in FAULTS}
    by_room = sorted(FAULTS.items(), key=lambda named: named[1].has_room)
    lacking = [(name, agent) for name, fault in by_room for agent in fault.words]
    going: list[str] = []

    def at_most(number: int) -> bool:
        going[:] = [job for job in going if not ended(card.prod, job)]
        return len(going) <= number

    for _ in range(TRIES):
        for has_room, some in groupby(lacking, key=lambda each: FAULTS[each[0]].has_room):
            card.show(has_room=has_room)
            for name, agent in some:
                eventually(lambda: at_most(AT_ONCE - 1), "others have ended", going.copy)
                jobs[name][agent] = FAULTS[name].start(card, agent)
                going.append(jobs[name][agent])
            eventually(lambda: at_most(0), "all have ended", going.copy)
        lacking = [(name, agent) for name, agent in lacking if not FAULTS[name].met(card, agent, jobs[name][agent])]
    return Runs(jobs, before, card.state())


def said(card: Card, job: str) -> str:
    return "\n".join(map(json.dumps, log_of(card.prod, job)))


def test_no_fault_makes_an_agent_act(runs: Runs) -> None:
    assert runs.after == runs.before


@pytest.mark.parametrize(("fault", "agent"), [(name, agent) for name, fault in FAULTS.items() for agent in fault.words])
def test_the_agent_reports_what_is_wrong(card: Card, runs: Runs, fault: str, agent: str) -> None:
    job = runs.jobs[fault][agent]
    assert FAULTS[fault].met(card, agent, job), said(card, job)


def test_without_dns_it_is_reported_on_the_deployment(card: Card, runs: Runs) -> None:
    assert card.prod.events(OPEN, names.EVENT_GATE_UNANSWERED)


def recycled(card: Card) -> set[str]:
    return {event["regarding"]["name"] for event in card.prod.events(RUNAWAY[0], names.EVENT_RECYCLED)}


def test_without_a_fault_the_runaway_is_evicted_and_the_gate_closes_even_with_a_slow_api(
    card: Card, runs: Runs
) -> None:
    """This test runs near the end, because it evicts the pod that other tests need."""
    slow, before = behind_an_api_that_takes(0.5), recycled(card)
    # The gate runs first, because it stops no workload while an evicted pod terminates.
    card.show(has_room=False)
    card.run(names.GATE, seconds=30)
    becomes(card.replicas, {OPEN: 0, CLOSED: 0}, "the gate has closed")
    card.run(names.WATCHDOG, change=slow, seconds=60)
    eventually(lambda: card.runaway.uid not in card.state()["pods"], "the runaway is recycled")
    told = eventually(lambda: recycled(card) - before, "it is told of")
    assert told == {card.runaway.name}
    neighbour = eventually(lambda: running(card.prod, *NEIGHBOUR), "the neighbour runs")
    assert neighbour["metadata"]["uid"] == card.neighbour.uid


def test_writes_of_the_agents_are_no_drift_but_changes_of_others_are(card: Card) -> None:
    prod = card.prod
    for agent in (names.WATCHDOG, names.GATE):
        assert prod.get(f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.journal(agent)}")["data"]
    found = prod.drift()
    assert found.code == 0, found.text
    edited = f"{cron_job(names.WATCHDOG)}?fieldManager=kubectl-edit"
    declared = prod.get(edited)["spec"]["schedule"]
    prod.cluster.api.patch(edited, {"spec": {"schedule": "0 * * * *"}})
    found = prod.drift()
    assert found.code != 0
    assert names.WATCHDOG in found.text
    prod.cluster.api.patch(edited, {"spec": {"schedule": declared}})
