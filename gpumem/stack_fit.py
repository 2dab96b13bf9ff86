"""Makes a change of a stack file after which new pods fit. The checks of the settings and the rules of the policy pack
judge the change."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpumem import checkout, output
from gpumem.draw_fit import NEW_TENANT
from gpumem.fit import Fit, FitPool

_PREFIX = "gpu-tenancy:"


class StackFile:
    """A stack file. Raises CheckoutError."""

    def __init__(self, name: str, root: Path) -> None:
        found = checkout.read(name, root)
        self.name, self.ledger = name, found.ledger
        self._raw = found.values

    def with_patch(self, found: Fit) -> Fit:
        """Returns the report with a patch of the stack file.

        Chooses the best pool for which the policy pack accepts the patch.
        """
        refusals: tuple[str, ...] = ()
        if found.pools and found.pools[0].fits and found.pools[0].seat:
            return replace(found, stack=self.name)  # A seat that is promised already needs no change.
        for pool in found.pools:
            patch = self._patch(found, pool)
            if patch is None:
                continue
            refused = self._refusals(patch)
            if not refused:
                return replace(found, stack=self.name, patch=self._text(patch))
            refusals = refusals or refused
        return replace(found, stack=self.name, refusals=refusals)

    def _patch(self, found: Fit, pool: FitPool) -> dict[str, dict[str, Any]] | None:
        if pool.never or pool.promises is None:
            return None
        tenant = found.tenant or NEW_TENANT
        spread = {"devices_per_pod": found.gpu_count} if found.gpu_count > 1 else {}
        residents: dict[str, Any] = {
            self._name(tenant): {
                "tenant": tenant,
                "pool": pool.pool,
                "gpumem_mib": found.mib,
                "replicas": found.replicas,
                **spread,
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
        return {**patch, "pools": {pool.pool: {"nodes": pool.nodes}}}

    def _text(self, patch: Mapping[str, Mapping[str, Any]]) -> str:
        return output.as_yaml({f"{_PREFIX}{part}": entries for part, entries in patch.items()})

    def _name(self, tenant: str) -> str:
        taken = {name for part in ("residents", "on_demand", "unbudgeted") for name in self._raw.get(part, {})}
        numbered = (f"{tenant}-{number}" for number in range(2, len(taken) + 3))
        return next(name for name in (tenant, *numbered) if name not in taken)

    def _refusals(self, patch: Mapping[str, Any]) -> tuple[str, ...]:
        changed = copy.deepcopy(dict(self._raw))
        _merge(changed, patch)
        return checkout.refusals_of(changed)


def _merge(into: dict[str, Any], patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)
