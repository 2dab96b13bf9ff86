"""Shares of a node: the pod of a promise requests no more CPU and host memory than its part of the node.

The policy reads requests, because the scheduler places and preempts by requests. A pod without requests takes nothing
from anybody's promise. A ResourceQuota on CPU and memory would do less: it holds the sum of a namespace, and would
refuse each of its pods that states no request.
"""

import json
from collections.abc import Mapping
from typing import Any

from tenancy.admission import cel
from tenancy.admission.policy import Manifest, Scope, in_namespaces, validating
from tenancy.names import Names
from tenancy.policy_names import NODE_SHARES
from tenancy.shares import Share
from tenancy.units import MIB

_UNBOUND = 2**62


def node_shares(
    names: Names, shares: Mapping[str, Mapping[int, Share]], seats: Mapping[str, Mapping[str, Share]]
) -> list[Manifest]:
    """Returns the policy, if a tenant has a bound. `shares` has the share of one device, by tenant and by gpumem.
    `seats` has it by tenant and by seat label, for tenants with seats in several pools."""
    if not shares and not seats:
        return []
    size, label = "variables.taken / variables.spread", cel.seat_label(names)
    share = f"{_by_tenant(shares)}[?request.namespace].orValue({{}})[?{size}].orValue([])"
    if seats:
        share = f"{_by_tenant(seats)}[?request.namespace].orValue({{}})[?{label}].orValue({share})"
    variables = {
        "taken": cel.most_at_once(lambda container: cel.gpumem_of(container, names)),
        "spread": cel.devices_of(names),
        "share": share,
        "milliCpus": cel.requested("cpu", 1000),
        "hostMemory": cel.requested("memory", 1),
    }
    validations = {
        f"variables.share.size() == 0 || variables.{asked} <= variables.share[{at}] * variables.spread": (
            f"'this pod requests ' + string(variables.{asked} / {unit}) + '{name}, and its part of the node is ' + "
            f"string(variables.share[{at}] * variables.spread / {unit}) + '{name}: lower its requests, or raise {key} "
            "of its workload under residents, on_demand or unbudgeted of the stack'"
        )
        for at, (asked, unit, name, key) in enumerate(
            (("milliCpus", 1, "m CPU", "cpus"), ("hostMemory", MIB, "Mi of host memory", "host_memory_mib"))
        )
    }
    scope = Scope(in_namespaces({*shares, *seats}), {"asks-for-a-device": cel.asks_for_device(names)})
    return [validating(NODE_SHARES, scope, validations, variables, message_key="messageExpression")]


def _by_tenant(shares: Mapping[str, Mapping[Any, Share]]) -> str:
    tenants = []
    for tenant, own in sorted(shares.items()):
        literals = (f"{json.dumps(key)}: {_literal(share)}" for key, share in sorted(own.items()))
        tenants.append(f"{cel.quoted(tenant)}: {{{', '.join(literals)}}}")
    return f"{{{', '.join(tenants)}}}"


def _literal(share: Share) -> str:
    memory = _UNBOUND if share.host_memory_mib is None else share.host_memory_mib * MIB
    return f"[{_UNBOUND if share.milli_cpus is None else share.milli_cpus}, {memory}]"
