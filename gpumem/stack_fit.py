"""What to write into a stack file so that new pods fit, proven by the settings and by the policy pack's own rules."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpumem import checkout, output
from gpumem.draw_fit import NEW_TENANT
from gpumem.fit import Fit, FitPool, with_stack

_PREFIX = "gpu-tenancy:"


class StackFile:
    """Pulumi.NAME.yaml of a checkout. Raises CheckoutError."""

    def __init__(self, name: str, root: Path) -> None:
        found = checkout.read(name, root)
        self.name, self.ledger = name, found.ledger
        self._stack, self._raw = found, found.values

    def with_patch(self, found: Fit) -> Fit:
        """What to write for the best pool, where the gate's rules pass it."""
        refusals: tuple[str, ...] = ()
        for pool in found.pools:
            patch = self._patch(found, pool)
            if patch is None:
                continue
            refused = self._refusals(patch)
            if not refused:
                return with_stack(found, self.name, self._text(patch), ())
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

    def _text(self, patch: Mapping[str, Mapping[str, Any]]) -> str:
        """As YAML; where the stack has files of its own, a document for each, which begins with the file's name."""
        files: dict[Path, dict[str, dict[str, Any]]] = {}
        for part, entries in patch.items():
            for name, entry in entries.items():
                file = self._file(part, name, entry)
                files.setdefault(file, {}).setdefault(f"{_PREFIX}{part}", {})[name] = entry
        if [*files] == [self._stack.path]:
            return output.as_yaml(files[self._stack.path])
        titles = {file: self._stack.shown(file) for file in files} | {
            self._stack.path: f"{self._stack.path.name}, under config:"
        }
        return "".join(f"--- # {titles[file]}\n{output.as_yaml(parts)}" for file, parts in files.items())

    def _file(self, part: str, name: str, entry: Mapping[str, Any]) -> Path:
        """Where the entry stands; of a new one where its tenant has others, else where the part has some."""
        if name in self._raw.get(part, {}):
            return self._stack.home((part, name))
        tenant = entry.get("tenant")
        seats = (each for each, seat in self._raw.get(part, {}).items() if seat.get("tenant") == tenant)
        neighbour = next(seats, None) if tenant else None
        return self._stack.home((part, neighbour) if neighbour else (part,))

    def _name(self, tenant: str) -> str:
        """That no workload has."""
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
