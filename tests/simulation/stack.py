"""The stacks of the simulated cluster: prod's stack, and prod's stack with changes."""

from collections.abc import Mapping
from functools import cache

from simulation.stack import Stack, stack_of
from stacks import settings
from tests.support import prod
from tests.support.prod import Change

QUEUE_MIB = 1500


def two_nodes(config: prod.Raw) -> None:
    """Adds a second node with a T4, and a second replica of each seat."""
    config["pools"]["t4"] |= {"nodes": 2}
    _twice(config)


def two_devices(config: prod.Raw) -> None:
    """Adds a second T4 to the node, and a second replica of each seat."""
    config["pools"]["t4"] |= {"device_count": 2}
    _twice(config)


def _twice(config: prod.Raw) -> None:
    for name, seat in [*config["residents"].items()]:
        if seat["pool"] == "t4":
            config["residents"][name] = {**seat, "replicas": 2}


def shared_queue(config: prod.Raw) -> None:
    """Gives 1500 MiB of the T4 to queued Jobs instead of a seat."""
    del config["residents"]["portal-stt"]
    queues = config["queues"]
    queues["flavors"]["t4-share"] = {"pool": "t4"}
    resource = f"{config['cluster']['resource_domain']}/gpumem"
    queues["cluster_queues"]["share-cq"] = {"quotas": {"t4-share": {resource: {"nominal": QUEUE_MIB}}}}
    queues["local_queues"]["team-a-share"] = {"tenant": "team-a", "cluster_queue": "share-cq"}


def observing(config: prod.Raw) -> None:
    """Sets the stack's mode to observe, so that the agents only report."""
    config["mode"] = "observe"


CHANGES: Mapping[str, tuple[Change, ...]] = {
    "prod": (),
    "two nodes": (two_nodes,),
    "two devices": (two_devices,),
    "queue": (shared_queue,),
    "observing": (observing,),
}


def config(kind: str) -> prod.Raw:
    found = prod.raw()
    for change in CHANGES[kind]:
        change(found)
    return found


@cache
def stack(kind: str = "prod") -> Stack:
    return stack_of(settings.parse(config(kind)))
