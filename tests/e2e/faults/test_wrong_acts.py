"""Causes faults around agents in real containers. During a fault, no agent acts wrongly, and an alert fires.

The device is below its floor, because one pod is over its budget. Without a fault, the watchdog would evict the pod,
and the gate would stop a workload.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agents.node.pods import NodePod
from agents.runtime import exposition
from tenancy import names
from tenancy.ledger import Ledger
from tenancy.units import MIB
from tests.support.alerting import AFTER_SECONDS, FAULT, SCRAPE_SECONDS, TimeLine, beats
from tests.support.e2e import exporters
from tests.support.e2e.agents import ended, log_of, start, succeeded
from tests.support.e2e.exporters import Answer, pod_of, shown
from tests.support.e2e.hardships import Change, an_hour_ahead, behind_an_api_that_takes, nothing, without_rights
from tests.support.e2e.rollout import (
    GPUMEM,
    SHARED,
    SYSTEM,
    Object,
    Rollout,
    becomes,
    deployment,
    eventually,
    pods,
)

NODE, ASIDE = "k8s-node1", "node-4"
RUNAWAY, NEIGHBOUR = ("immich", "immich-ml"), ("frigate", "frigate")
OPEN, CLOSED = "ytdlp", "ebook2audiobook"
APPS = "/apis/apps/v1/namespaces"
MONITORING = "/apis/monitoring.coreos.com/v1/namespaces"
FREE_MIB, RUNAWAY_MIB, NEIGHBOUR_MIB = 610, 12_000, 1_800
REFUSED, HONEST, ROOMY = 9500, 9501, 9502
RUN = {"RUN_SECONDS": "6", "INTERVAL_SECONDS": "2"}
QUICK = {"MINIMUM_AGE_SECONDS": "1", "COOL_DOWN_SECONDS": "1"}


@dataclass(frozen=True, kw_only=True)
class Fault:
    words: Mapping[str, str]
    alert: str | None
    answer: Callable[["Card"], Answer] | None = lambda card: Answer(text=card.pressed)
    completes: tuple[str, ...] = ()
    change: Change = nothing
    run_seconds: int = 6
    demand_by_name: bool = False

    def start(self, card: "Card", agent: str, port: int) -> str:
        given = {"GATES": json.dumps(gates(card.prod))} if self.demand_by_name else {}
        return card.run(agent, port, change=self.change, seconds=self.run_seconds, **given)

    def met(self, card: "Card", agent: str, job: str) -> bool:
        return self.words[agent] in said(card, job) and succeeded(card.prod, job) is (agent in self.completes)


ALL = (names.RECONCILE, names.WATCHDOG, names.GATE)
MISSING, FROZEN, IMPLAUSIBLE, SILENT = (
    f"Gpu{name}" for name in ("TelemetryMissing", "TelemetryFrozen", "TelemetryImplausible", "AgentSilent")
)
FAULTS = {
    "exporter down": Fault(
        words={names.WATCHDOG: "Connection refused"}, alert=MISSING, answer=None, completes=(names.WATCHDOG,)
    ),
    "exporter frozen": Fault(
        words={names.WATCHDOG: "nothing in it has changed for", names.GATE: "would close if more samples agree"},
        alert=FROZEN,
        completes=(names.GATE, names.WATCHDOG),
        answer=lambda card: Answer(text=card.pressed, frozen=True),
        run_seconds=80,
    ),
    "exporter lying about the device": Fault(
        words=dict.fromkeys((names.WATCHDOG, names.GATE), "used and free are far less than the device has"),
        alert=IMPLAUSIBLE,
        completes=(names.GATE, names.WATCHDOG),
        answer=lambda card: Answer(text=card.shows(RUNAWAY_MIB, used_mib=13_900, free_mib=100)),
    ),
    "rights missing": Fault(words=dict.fromkeys(ALL, "403 Forbidden"), alert=SILENT, change=without_rights),
    "API slow": Fault(words=dict.fromkeys(ALL, "timed out"), alert=SILENT, change=behind_an_api_that_takes(12)),
    "clock ahead": Fault(
        words=dict.fromkeys((names.WATCHDOG, names.GATE), "the API server's clock and this node's are")
        | {names.RECONCILE: "all nodes are up to date"},
        completes=(names.RECONCILE,),
        alert=SILENT,
        change=an_hour_ahead,
    ),
    "no DNS": Fault(
        words={names.GATE: "name resolution"},
        # No alert exists for a failed probe.
        alert=None,
        answer=lambda card: Answer(text=card.shows(3000, free_mib=9000)),
        completes=(names.GATE,),
        demand_by_name=True,
    ),
}
AT_ONCE, TRIES = 4, 3
PORTS = {fault: 9510 + number if FAULTS[fault].answer else REFUSED for number, fault in enumerate(FAULTS)}


@dataclass(frozen=True)
class Card:
    prod: Rollout
    ledger: Ledger
    runaway: NodePod
    neighbour: NodePod

    def shows(self, runaway_mib: int, *, free_mib: int = FREE_MIB, used_mib: int | None = None) -> str:
        uses = ((self.runaway, runaway_mib), (self.neighbour, NEIGHBOUR_MIB))
        return shown(self.ledger, uses, free_mib, used_mib=used_mib)

    @property
    def pressed(self) -> str:
        return self.shows(RUNAWAY_MIB)

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

    def run(self, agent: str, port: int, *, change: Change = nothing, seconds: int = 6, **environment: str) -> str:
        own = {names.WATCHDOG: QUICK, names.GATE: {"GATES": json.dumps(wanted(self.prod))}, names.RECONCILE: {}}[agent]
        given = {"EXPORTER_PORT": str(port)} if agent != names.RECONCILE else {}
        return start(self.prod, agent, change, **RUN | own | given | {"RUN_SECONDS": str(seconds)} | environment)


def wanted(prod: Rollout) -> list[Object]:
    now = datetime.now(UTC)
    between = "-".join(f"{now + timedelta(hours=hours):%H:00}" for hours in (-1, 3))
    demand = {"kind": "window", "between": between, "time_zone": "Etc/UTC"}
    return [{**each, "demand": demand} for each in gates(prod)]


def gates(prod: Rollout) -> list[Object]:
    cron_job = prod.get(f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs/{names.GATE}")
    (container,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    (declared,) = (variable["value"] for variable in container["env"] if variable["name"] == "GATES")
    return [each for each in json.loads(declared) if each["name"] in (OPEN, CLOSED)]


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
    found = Card(prod, Ledger.from_data(json.loads(ledger)), runaway, neighbour)
    script = {HONEST: Answer(text=found.pressed), ROOMY: Answer(text=found.shows(3000, free_mib=9000))}
    script |= {PORTS[name]: fault.answer(found) for name, fault in FAULTS.items() if fault.answer}
    exporters.serve(prod, script, NODE)
    try:
        yield found
    finally:
        prod.delete(pods(exporters.NODES, exporters.NAME))
        for namespace, app in apps:
            prod.delete(f"{APPS}/{namespace}/deployments/{app}")


def running(prod: Rollout, namespace: str, app: str) -> Object | None:
    found = prod.items(f"{pods(namespace)}?labelSelector=app%3D{app}")
    return next((pod for pod in found if pod["status"].get("phase") == "Running"), None)


@dataclass(frozen=True)
class Runs:
    jobs: Mapping[str, Mapping[str, str]]
    before: Object
    after: Object


@pytest.fixture(scope="module")
def runs(card: Card) -> Runs:
    before, jobs = card.state(), {name: dict[str, str]() for name in FAULTS}
    by_length = sorted(FAULTS.items(), key=lambda named: -named[1].run_seconds)
    lacking = [(name, agent) for name, fault in by_length for agent in fault.words]
    going: list[str] = []

    def at_most(number: int) -> bool:
        going[:] = [job for job in going if not ended(card.prod, job)]
        return len(going) <= number

    for _ in range(TRIES):
        for name, agent in lacking:
            eventually(lambda: at_most(AT_ONCE - 1), "others have ended", going.copy)
            jobs[name][agent] = FAULTS[name].start(card, agent, PORTS[name])
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


At = Callable[[int], float | None]
Scrapes = Mapping[int, list[dict[str, float]]]


@pytest.fixture(scope="module")
def scrapes(card: Card, runs: Runs) -> Scrapes:
    ports = {ROOMY, HONEST, *PORTS.values()} - {REFUSED}
    answers = exporters.served(card.prod, sorted(ports))
    return {REFUSED: [{}, {}]} | {port: [by_series(text) for text in texts] for port, texts in answers.items()}


@pytest.mark.parametrize("fault", [name for name, fault in FAULTS.items() if fault.alert])
def test_an_alert_reports_it_within_three_minutes(
    card: Card, runs: Runs, scrapes: Scrapes, tmp_path: Path, fault: str
) -> None:
    after = HONEST if FAULTS[fault].change is not nothing else PORTS[fault]
    (rule,) = card.prod.items(f"{MONITORING}/{SYSTEM}/prometheusrules")
    series = time_line(scrapes[ROOMY], scrapes[after]) | others(card, runs.jobs[fault])
    line = TimeLine(rule["spec"], series, tmp_path)
    line.assert_quiet_before()
    assert line.fires(str(FAULTS[fault].alert), AFTER_SECONDS - 1)


def time_line(before: list[dict[str, float]], after: list[dict[str, float]]) -> dict[str, At]:
    def of(series: str) -> At:
        def at(second: int) -> float | None:
            return (before if second <= FAULT else after)[second // SCRAPE_SECONDS % 2].get(series)

        return at

    return {series: of(series) for answer in (*before, *after) for series in answer}


def by_series(text: str) -> dict[str, float]:
    found = {}
    for sample in exposition.parse(text):
        labels = {"node": NODE, **sample.labels}
        found[f"{sample.name}{{{','.join(f'{key}={json.dumps(value)}' for key, value in labels.items())}}}"] = (
            sample.value
        )
    return found


def others(card: Card, jobs: Mapping[str, str]) -> dict[str, At]:
    system = f'namespace="{SYSTEM}"'
    found: dict[str, At] = {
        f'kube_cronjob_status_last_successful_time{{{system},cronjob="{agent}"}}': beats(
            **({} if agent not in jobs or succeeded(card.prod, jobs[agent]) else {"until": FAULT + 3})
        )
        for agent in ALL
    }
    resource = GPUMEM.replace(".", "_").replace("/", "_")
    for node in (NODE, ASIDE):
        mib = float(card.prod.capacity(node)[GPUMEM].replace("k", "000"))
        found[f'kube_node_status_allocatable{{node="{node}",resource="{resource}"}}'] = constant(mib)
    for pod in (card.runaway, card.neighbour):
        labels = f'namespace="{pod.namespace}",pod="{pod.name}",phase="Running"'
        found[f"kube_pod_status_phase{{{labels}}}"] = constant(1)
    well = (names.METRIC_EXTENDER_LEADING, names.METRIC_EXTENDER_READY, names.METRIC_GUARD_API_AGE)
    found |= {f'{metric}{{instance="well"}}': constant(1) for metric in well}
    served = {names.METRIC_DEVICE_FREE: 9000, names.METRIC_POOL_FLOOR: 1536}
    return found | {
        f'{metric}{{node="{ASIDE}",pool="{ASIDE}",uuid="{ASIDE}"}}': constant(mib * MIB)
        for metric, mib in served.items()
    }


def constant(value: float) -> At:
    return lambda second: value


def recycled(card: Card) -> set[str]:
    return {event["regarding"]["name"] for event in card.prod.events(RUNAWAY[0], names.EVENT_RECYCLED)}


def test_without_a_fault_the_runaway_is_evicted_and_the_gate_closes_even_with_a_slow_api(
    card: Card, runs: Runs
) -> None:
    """This test runs near the end, because it evicts the pod that other tests need."""
    slow, before = behind_an_api_that_takes(0.5), recycled(card)
    # The gate runs first, because it stops no workload while an evicted pod terminates.
    card.run(names.GATE, HONEST, seconds=30)
    becomes(card.replicas, {OPEN: 0, CLOSED: 0}, "the gate has closed")
    card.run(names.WATCHDOG, HONEST, change=slow, seconds=60)
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
    cron_job = f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs/{names.WATCHDOG}"
    prod.cluster.api.patch(f"{cron_job}?fieldManager=kubectl-edit", {"spec": {"schedule": "0 * * * *"}})
    found = prod.drift()
    assert found.code != 0
    assert names.WATCHDOG in found.text
    prod.rolled_out = None
