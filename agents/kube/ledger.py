"""The ledger as the agents read it: through the API, so that its deletion is seen."""

import json
from dataclasses import dataclass

from agents.kube.client import Api, Object
from agents.runtime.errors import AgentError
from tenancy.decode import DecodeError
from tenancy.ledger import Ledger
from tenancy.names import LEDGER, LEDGER_KEY


class LedgerError(AgentError):
    """The ConfigMap holds no ledger; the message names every problem."""


@dataclass(frozen=True, kw_only=True)
class StoredLedger:
    """The ConfigMap that carries the ledger."""

    path: str
    resource_version: str
    finalizers: tuple[str, ...]
    deleting: bool
    text: str | None

    @property
    def collection(self) -> str:
        """The path of the ConfigMaps of its namespace."""
        return self.path.rpartition("/")[0]

    def ledger(self) -> Ledger:
        """What of it this version of the agents knows (docs/adr/0022). Raises LedgerError."""
        return self._decoded([])

    def unknown_keys(self) -> tuple[str, ...]:
        """The paths of what `ledger` leaves out: another version wrote it. Raises LedgerError."""
        ignored: list[str] = []
        self._decoded(ignored)
        return tuple(ignored)

    def _decoded(self, ignored: list[str]) -> Ledger:
        if self.text is None:
            raise LedgerError(f"ConfigMap {LEDGER}: has no key {LEDGER_KEY}; run pulumi up")
        try:
            return Ledger.from_data(json.loads(self.text), ignored)
        except DecodeError as error:
            raise LedgerError(f"ConfigMap {LEDGER}, {LEDGER_KEY}: {error}; run pulumi up") from None
        except ValueError as error:
            raise LedgerError(f"ConfigMap {LEDGER}, {LEDGER_KEY}: is not JSON: {error}; run pulumi up") from None


def read(api: Api, namespace: str) -> StoredLedger | None:
    """The stored ledger; None where there is none. Raises ApiError."""
    stored = api.find(_path(namespace))
    return None if stored is None else stored_ledger(stored, namespace)


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps/{LEDGER}"


def stored_ledger(stored: Object, namespace: str) -> StoredLedger:
    """The ledger's ConfigMap of that namespace, as the API shows it."""
    metadata = stored["metadata"]
    return StoredLedger(
        path=_path(namespace),
        resource_version=metadata["resourceVersion"],
        finalizers=tuple(metadata.get("finalizers") or ()),
        deleting="deletionTimestamp" in metadata,
        text=(stored.get("data") or {}).get(LEDGER_KEY),
    )
