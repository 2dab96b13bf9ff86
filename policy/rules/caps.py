"""The rule on the driver's caps: a pool can have caps. Admission denies a pod that sets its own cap."""

from collections.abc import Iterator

from policy.finding import Finding
from policy.graph import Graph
from policy.rule import Example, rule
from tenancy.choices import Enforce
from tenancy.ledger import Ledger, Pool

# GPU feature discovery and NVIDIA's MIG manager set the labels of MIG.
_MIG_LABEL, _MIG_OFF = "nvidia.com/mig.config", "all-disabled"
_PRODUCT_LABEL, _MIG_PRODUCT = "nvidia.com/gpu.product", "-MIG-"


@rule(
    "caps",
    Example(
        "pools.t4.node_selector",
        {"nvidia.com/gpu.sharing-strategy": "time-slicing", _MIG_LABEL: "all-1g.10gb"},
        {"nvidia.com/gpu.sharing-strategy": "time-slicing", _MIG_LABEL: _MIG_OFF},
        given={"pools.t4.enforce": "driver"},
    ),
)
def caps(graph: Graph) -> Iterator[Finding]:
    """In a pool with enforce: driver, the driver can enforce the cap of every seat."""
    if graph.ledger is None:
        return
    for pool in graph.ledger.pools:
        if pool.enforce is Enforce.DRIVER:
            for problem in (*_problems(pool), *_uncapped(graph.ledger, pool)):
                yield Finding(f"pools.{pool.name}: {problem}", _urn(graph))


def _uncapped(ledger: Ledger, pool: Pool) -> Iterator[str]:
    """Reports a pool with enforce: driver, if admission only observes. Admission sets the caps of containers, but
    changes no pod while admission observes."""
    if pool.caps and "admission" in ledger.observes:
        yield "enforce: driver while admission observes, so that no pod gets its cap; write admission.mode: enforce"


def _urn(graph: Graph) -> str | None:
    return next((found.urn for found in graph.ledger_objects), None)


def _problems(pool: Pool) -> Iterator[str]:
    if pool.caps and not pool.reserve_mib:
        yield (
            "enforce: driver with reserve_mib 0: a seat of the whole device would be a limit that NVML cannot tell "
            "from none; reserve at least what the driver keeps of each device"
        )
    selector = pool.node_selector
    if selector.get(_MIG_LABEL, _MIG_OFF) != _MIG_OFF or _MIG_PRODUCT in selector.get(_PRODUCT_LABEL, ""):
        yield "enforce: driver on nodes that MIG divides, where the driver refuses limits; remove enforce, or MIG"
