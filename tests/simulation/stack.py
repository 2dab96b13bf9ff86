"""What the stack declares for the simulated cluster: the agents' environment, the quotas, the ledger and the alerts.

It is built by the stack's own code from a stack file, by default prod's: a setting that changes there changes here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from simulation import stack as of_any
from simulation.stack import environ_of
from tenancy.ledger import Ledger
from tenancy.names import GATE, LEDGER_KEY, RECONCILE, SCHEDULER, WATCHDOG
from tests.support import prod
from tests.support.prod import Change

QUEUE_MIB = 1500
AGENTS = {RECONCILE: "capacity-cron-job", WATCHDOG: "watchdog-cron-job", GATE: "gate-cron-job"}


@dataclass(frozen=True, kw_only=True)
class Stack(of_any.Stack):
    """`rules` are the PrometheusRule's."""

    rules: Mapping[str, Any]


def two_nodes(config: prod.Raw) -> None:
    """Prod with a second node of two T4, and the seats once more."""
    config["pools"]["t4"] |= {"nodes": 2}
    _twice(config)


def two_devices(config: prod.Raw) -> None:
    """Prod with a second T4 in its node, and the seats once more."""
    config["pools"]["t4"] |= {"device_count": 2}
    _twice(config)


def _twice(config: prod.Raw) -> None:
    for name, seat in [*config["residents"].items()]:
        if seat["pool"] == "t4":
            config["residents"][name] = {**seat, "replicas": 2}


def shared_queue(config: prod.Raw) -> None:
    """Prod with 1500 MiB of the T4 for queued Jobs, in the place of a seat."""
    del config["residents"]["portal-stt"]
    queues = config["queues"]
    queues["flavors"]["t4-share"] = {"pool": "t4"}
    resource = f"{config['cluster']['resource_domain']}/gpumem"
    queues["cluster_queues"]["share-cq"] = {"quotas": {"t4-share": {resource: {"nominal": QUEUE_MIB}}}}
    queues["local_queues"]["team-a-share"] = {"tenant": "team-a", "cluster_queue": "share-cq"}


CHANGES: Mapping[str, tuple[Change, ...]] = {
    "prod": (),
    "two nodes": (two_nodes,),
    "two devices": (two_devices,),
    "queue": (shared_queue,),
}


@cache
def stack(kind: str = "prod") -> Stack:
    """Built once in a process: it takes two seconds."""
    config = prod.raw()
    for change in CHANGES[kind]:
        change(config)
    objects = prod.declared(config)
    data = next(each["data"] for each in objects.values() if LEDGER_KEY in each.get("data", {}))
    text = data[LEDGER_KEY]
    ledger = Ledger.from_data(json.loads(text))
    cron_jobs = {agent: objects[name]["spec"] for agent, name in AGENTS.items()}
    environ = {agent: environ_of(spec["jobTemplate"]["spec"]["template"]["spec"]) for agent, spec in cron_jobs.items()}
    environ[SCHEDULER] = environ_of(objects["scheduler-deployment"]["spec"]["template"]["spec"], "extender")
    return Stack(
        ledger_text=text,
        ledger=ledger,
        environ=environ,
        overlaps={agent: spec.get("concurrencyPolicy") != "Forbid" for agent, spec in cron_jobs.items()},
        quotas={tenant: ledger.budget_mib(tenant) for tenant in {seat.tenant for seat in ledger.seats}},
        rules=objects["alerts-rule"]["spec"],
    )
