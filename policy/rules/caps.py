"""The rule on the driver's caps: a pool's nodes can enforce caps, and no pod sets its own cap."""

from collections.abc import Iterator

from policy.finding import Finding, judge_each
from policy.graph import Graph
from policy.objects import Object, text_at
from policy.rule import Example, rule
from tenancy import names
from tenancy.caps import VARIABLES
from tenancy.choices import Enforce
from tenancy.ledger import Ledger, Pool
from tenancy.workload import containers_of, map_at, maps_at, pod_template

# The first driver with memory limits in NVML, and the first container toolkit with a CDI hook that sets such limits.
_DRIVER, _TOOLKIT = "615", "1.20.1"
_LONGEST = 10  # No part of a version has more digits than this limit.
# GPU feature discovery and NVIDIA's MIG manager set the labels of MIG.
_MIG_LABEL, _MIG_OFF = "nvidia.com/mig.config", "all-disabled"
_PRODUCT_LABEL, _MIG_PRODUCT = "nvidia.com/gpu.product", "-MIG-"


@rule(
    "caps",
    Example(
        "pools.t4.driver_version",
        "580.95.05",
        "615.71.09",
        given={"pools.t4.enforce": "driver", "pools.t4.toolkit_version": _TOOLKIT},
    ),
)
def caps(graph: Graph) -> Iterator[Finding]:
    """In a pool with enforce: driver, the declared versions and labels show nodes that can enforce caps. No workload
    sets its own cap."""
    if graph.ledger is None:
        return
    for pool in graph.ledger.pools:
        if pool.enforce is Enforce.DRIVER:
            for problem in (*_problems(pool), *_uncapped(graph.ledger, pool)):
                yield Finding(f"pools.{pool.name}: {problem}", _urn(graph))
    if any(pool.caps for pool in graph.ledger.pools):
        exempt = (names.EXEMPT_BY_NAME, *graph.ledger.exempt_namespaces)
        yield from judge_each((o for o in graph.workloads if o.namespace not in exempt), _own_caps)


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
    for key, declared, needed in (
        ("driver_version", pool.driver_version, _DRIVER),
        ("toolkit_version", pool.toolkit_version, _TOOLKIT),
    ):
        if not declared:
            yield f"enforce: driver needs {key} {needed} or newer, and none is declared; write what the nodes have"
        elif _parts(declared) < _parts(needed):
            yield f"enforce: driver needs {key} {needed} or newer, and {declared} is declared; upgrade the nodes"


def _parts(version: str) -> tuple[int, ...]:
    """Returns the parts of a version as numbers. A part counts as 0 if it is very long or no number."""
    return tuple(int(part) if part.isdecimal() and len(part) < _LONGEST else 0 for part in version.split("."))


def _own_caps(workload: Object) -> Iterator[Finding]:
    """Like the admission policy, reports each container that sets its own cap, with or without a budget."""
    for container in containers_of(map_at(pod_template(workload.manifest) or {}, "spec")):
        own = sorted({text_at(variable, "name") for variable in maps_at(container, "env")} & set(VARIABLES))
        if own:
            yield Finding(
                f"{workload}: container {container.get('name')} sets {' and '.join(own)}, which admission alone does; "
                "remove it",
                workload.urn,
            )
