"""Compares the queues' quotas of CPU and host memory with the nodes of their pools."""

import math
from collections.abc import Iterator
from fractions import Fraction

from tenancy.ledger import Ledger, Pool
from tenancy.quantity import canonical_mib, canonical_text, parse
from tenancy.units import MIB

RESOURCES = ("cpu", "memory")


def overdrawn(ledger: Ledger) -> Iterator[str]:
    """Reports queues with a larger quota of CPU or host memory than their pool's nodes have. The function compares the
    sum of all queues, and each queue alone.

    The function ignores pools that do not declare the resource of their nodes.
    """
    for pool in ledger.pools:
        for resource in RESOURCES:
            offered = _offered(pool, resource)
            entries = [q for q in ledger.node_quotas if (q.pool, q.resource) == (pool.name, resource)]
            if offered is None or not entries:
                continue
            has = f"its nodes have {shown(resource, offered)}"
            change = f"lower nominal or borrowing_limit, or raise pools.{pool.name}.node_{resource}"
            nominal = sum(parse(entry.nominal) for entry in entries)
            if nominal > offered:
                yield f"{pool.name}: queues have {shown(resource, nominal)} {resource}, {has}; {change}"
                continue
            for entry in entries:
                most = parse(entry.nominal) + parse(entry.borrowing)
                if most > offered:
                    text = f"{entry.holder}: may hand out {shown(resource, most)} {resource} of {pool.name}"
                    yield f"{text}, {has}; {change}"


def summary(ledger: Ledger, pool: Pool) -> Iterator[str]:
    """Yields a text for each resource of the pool's nodes for which queues have quotas."""
    for resource in RESOURCES:
        entries = [q for q in ledger.node_quotas if (q.pool, q.resource) == (pool.name, resource)]
        if not entries:
            continue
        offered, nominal = _offered(pool, resource), sum(parse(entry.nominal) for entry in entries)
        text = f"queues: {shown(resource, nominal)} {resource}"
        if offered is None:
            yield f"{text}, not compared with the nodes, because pools.{pool.name}.node_{resource} is missing"
        else:
            yield f"{text} of {shown(resource, offered)}"


def _offered(pool: Pool, resource: str) -> Fraction | None:
    declared = {"cpu": pool.node_cpu, "memory": pool.node_memory}[resource]
    return pool.nodes * parse(declared) if declared else None


def shown(resource: str, amount: Fraction | int) -> str:
    if resource == "memory":
        return canonical_mib(math.ceil(amount / MIB))
    return canonical_text(f"{math.ceil(amount * 1000)}m")
