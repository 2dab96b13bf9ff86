"""The stacks of the simulated cluster: prod, prod with changes, or drawn from a seed."""

from collections.abc import Mapping
from functools import lru_cache

from stacks import settings
from tenancy.ledger import Pool
from tests.simulation import drawn_stack
from tests.simulation.model.stack import Stack, stack_of
from tests.support import prod
from tests.support.prod import Change

QUEUE_MIB = 1500
PROD_POOL = "t4"
_DRAWN = "drawn "


def two_nodes(config: prod.Raw) -> None:
    config["pools"]["t4"] |= {"nodes": 2}
    _twice(config)


def two_devices(config: prod.Raw) -> None:
    config["pools"]["t4"] |= {"device_count": 2}
    _twice(config)


def _twice(config: prod.Raw) -> None:
    for name, seat in [*config["residents"].items()]:
        if seat["pool"] == "t4":
            config["residents"][name] = {**seat, "replicas": 2}


def shared_queue(config: prod.Raw) -> None:
    del config["residents"]["portal-stt"]
    queues = config["queues"]
    queues["flavors"]["t4-share"] = {"pool": "t4"}
    resource = f"{config['cluster']['resource_domain']}/gpumem"
    queues["cluster_queues"]["share-cq"] = {"quotas": {"t4-share": {resource: {"nominal": QUEUE_MIB}}}}
    queues["local_queues"]["team-a-share"] = {"tenant": "team-a", "cluster_queue": "share-cq"}


def observing(config: prod.Raw) -> None:
    config["mode"] = "observe"


CHANGES: Mapping[str, tuple[Change, ...]] = {
    "prod": (),
    "two nodes": (two_nodes,),
    "two devices": (two_devices,),
    "queue": (shared_queue,),
    "observing": (observing,),
}


def drawn(seed: int) -> str:
    return f"{_DRAWN}{seed}"


def is_drawn(kind: str) -> bool:
    return kind.startswith(_DRAWN)


def nodes_of(pool: Pool) -> list[str]:
    return [f"{pool.name}-{number}" for number in range(pool.nodes)]


def config(kind: str) -> prod.Raw:
    if is_drawn(kind):
        return drawn_stack.config(int(kind.removeprefix(_DRAWN)))
    found = prod.raw()
    for change in CHANGES[kind]:
        change(found)
    return found


@lru_cache(maxsize=64)
def stack(kind: str = "prod") -> Stack:
    return stack_of(settings.parse(config(kind)))
