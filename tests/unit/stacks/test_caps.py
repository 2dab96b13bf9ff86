"""What a stack file says of the driver's caps, and what it needs next to it."""

import pytest

from stacks import settings
from tenancy.ledger import Enforce
from tests.support.prod import Change, drop, put, raw, refusal

ON = (
    put("scheduler", {"placement": "extender"}),
    put("pools t4 enforce", "driver"),
    put("pools t4 driver_version", "615.71.09"),
    put("pools t4 toolkit_version", "1.20.1"),
)


def parsed(*changes: Change) -> settings.StackSettings:
    config = raw()
    for change in changes:
        change(config)
    return settings.parse(config)


def test_a_pool_that_enforces_is_so_in_the_ledger() -> None:
    (t4,) = [pool for pool in parsed(*ON).ledger().pools if pool.name == "t4"]
    assert (t4.enforce, t4.require_cap, t4.driver_version, t4.toolkit_version) == (
        Enforce.DRIVER,
        True,
        "615.71.09",
        "1.20.1",
    )


def test_nothing_of_it_is_on_in_prod_nor_in_its_ledger() -> None:
    ledger = parsed().ledger()
    assert not any(pool.caps for pool in ledger.pools)
    assert "enforce" not in str(ledger.to_data())


REFUSED: dict[str, tuple[tuple[Change, ...], str]] = {
    "in a pool of whole devices": (
        (*ON, put("pools batch enforce", "driver")),
        "pools.batch.enforce: driver has no use where sharing is whole: no container has a budget; remove it",
    ),
    "with a word that means nothing": (
        (*ON, put("pools t4 enforce", "mps")),
        "pools.t4.enforce: must be one of 'none' or 'driver' (got 'mps')",
    ),
    "a version that is none": (
        (*ON, put("pools t4 driver_version", "R615")),
        "pools.t4.driver_version: must be a version such as 1.20.1: numbers with dots between them (got 'R615')",
    ),
    "without a scheduler": (
        (*ON, drop("scheduler")),
        "scheduler: is missing though pools.t4.enforce is driver: nobody would choose the devices that a container is "
        "held to its budget on",
    ),
    "where seats are claimed": (
        (*ON, put("scheduler", {"placement": "dra"})),
        "pools.t4.enforce: where seats are claimed (scheduler.placement dra) no container has gpumem; remove it",
    ),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused(changes: tuple[Change, ...], message: str) -> None:
    assert message in "\n".join(refusal(*changes))
