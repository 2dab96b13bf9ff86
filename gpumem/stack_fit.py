"""A stack file's ledger, and what to write into that file, proven by the settings and by the policy pack's own rules.

The plugin alone has neither: they are imported when a stack is named, from the checkout.
"""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.runtime.errors import AgentError
from gpumem import output
from gpumem.draw_fit import NEW_TENANT
from gpumem.fit import Fit, FitPool, with_stack
from tenancy.ledger import Ledger

_PREFIX = "gpu-tenancy:"


class StackError(AgentError):
    """The stack file cannot be read or judged here; the message says what to do."""


class StackFile:
    """Pulumi.NAME.yaml of a checkout. Raises StackError."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, path = name, root / f"Pulumi.{name}.yaml"
        _needed()
        from stacks import settings, stackfile  # noqa: PLC0415

        if not path.is_file():
            raise StackError(f"{path} is not there: --stack names a Pulumi.NAME.yaml of the folder you are in")
        try:
            self.ledger: Ledger = settings.load_file(path).ledger()
        except settings.ConfigError as error:
            raise StackError(str(error)) from None
        self._raw = stackfile.read(path).values

    def with_patch(self, found: Fit) -> Fit:
        """What to write for the best pool, where the gate's rules pass it."""
        refusals: tuple[str, ...] = ()
        for pool in found.pools:
            patch = self._patch(found, pool)
            if patch is None:
                continue
            refused = self._refusals(patch)
            if not refused:
                text = output.as_yaml({f"{_PREFIX}{part}": entries for part, entries in patch.items()})
                return with_stack(found, self.name, text, ())
            refusals = refusals or refused
        return with_stack(found, self.name, None, refusals)

    def _patch(self, found: Fit, pool: FitPool) -> dict[str, dict[str, Any]] | None:
        """By part of the file: the new seat, and the seats that are lower for it; else the nodes."""
        if pool.never or pool.promises is None:
            return None
        tenant = found.tenant or NEW_TENANT
        residents: dict[str, Any] = {
            self._name(tenant): {
                "tenant": tenant,
                "pool": pool.pool,
                "gpumem_mib": found.mib,
                "replicas": found.replicas * found.gpu_count,
            }
        }
        patch: dict[str, dict[str, Any]] = {"residents": residents}
        if tenant not in self._raw.get("tenants", {}):
            patch["tenants"] = {tenant: {}}
        if pool.promises.changes is not None:
            residents.update({each.workload: {"gpumem_mib": each.to_mib} for each in pool.promises.changes})
            return patch
        if pool.nodes is None:
            return None
        floor = {} if pool.floor_mib is None else {"floor_mib": pool.floor_mib}
        return {**patch, "pools": {pool.pool: {"nodes": pool.nodes, **floor}}}

    def _name(self, tenant: str) -> str:
        """That no workload has."""
        taken = {name for part in ("residents", "on_demand", "unbudgeted") for name in self._raw.get(part, {})}
        numbered = (f"{tenant}-{number}" for number in range(2, len(taken) + 3))
        return next(name for name in (tenant, *numbered) if name not in taken)

    def _refusals(self, patch: Mapping[str, Any]) -> tuple[str, ...]:
        from components.host_memory import host_memory_pools  # noqa: PLC0415
        from policy.graph import Graph  # noqa: PLC0415
        from policy.rules import violations  # noqa: PLC0415
        from stacks import settings  # noqa: PLC0415

        changed = copy.deepcopy(dict(self._raw))
        _merge(changed, patch)
        try:
            judged = settings.parse(changed)
        except settings.ConfigError as error:
            return tuple(str(error).splitlines())
        pools = host_memory_pools(judged.memory_pools)
        configured = {"ledger": judged.ledger().to_data(), "memory_pools": pools.to_data()}
        return tuple(str(each) for each in violations(Graph((), configured)))


def _merge(into: dict[str, Any], patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)


def _needed() -> None:
    try:
        import policy.rules  # noqa: F401, PLC0415
        import stacks.settings  # noqa: F401, PLC0415
    except ImportError as error:
        raise StackError(
            f"--stack needs the project's checkout and its environment ({error}): there, make gpumem ARGS='fit MIB "
            "--stack NAME'; or leave --stack out, and the cluster's ledger is read"
        ) from None
