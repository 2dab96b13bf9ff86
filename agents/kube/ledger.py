"""Reads the ledger from the API server."""

import json
from dataclasses import dataclass
from functools import lru_cache

from agents.kube.client import Api, Object
from agents.kube.paths import ApiPath, api_path, below
from agents.runtime.errors import AgentError
from tenancy.decode import DecodeError
from tenancy.ledger import Ledger
from tenancy.names import LEDGER, LEDGER_KEY


class LedgerError(AgentError):
    """The ConfigMap contains no valid ledger. The message lists every problem."""


@dataclass(frozen=True, kw_only=True)
class StoredLedger:
    namespace: str
    resource_version: str
    finalizers: tuple[str, ...]
    deleting: bool
    text: str | None

    @property
    def collection(self) -> ApiPath:
        """Returns the path of the ConfigMaps in the ledger's namespace."""
        return _config_maps(self.namespace)

    @property
    def path(self) -> ApiPath:
        return below(self.collection, LEDGER)

    def ledger(self) -> Ledger:
        """Returns the ledger's text without the keys that this version of the agents does not know (docs/adr/0022).
        Raises LedgerError.
        """
        return _decoded(self._given())[0]

    def unknown_keys(self) -> tuple[str, ...]:
        """Returns the paths of the keys that this version of the agents does not know. Raises LedgerError."""
        return _decoded(self._given())[1]

    def _given(self) -> str:
        if self.text is None:
            raise LedgerError(f"ConfigMap {LEDGER}: has no key {LEDGER_KEY}; run pulumi up")
        return self.text


@lru_cache(maxsize=1)
def _decoded(text: str) -> tuple[Ledger, tuple[str, ...]]:
    """Decodes the ledger, and finds its unknown keys. Caches the decoded ledger, because agents read the same text
    every few seconds.

    Raises LedgerError.
    """
    ignored: list[str] = []
    try:
        return Ledger.from_data(json.loads(text), ignored), tuple(ignored)
    except DecodeError as error:
        raise LedgerError(f"ConfigMap {LEDGER}, {LEDGER_KEY}: {error}; run pulumi up") from None
    except ValueError as error:
        raise LedgerError(f"ConfigMap {LEDGER}, {LEDGER_KEY}: is not JSON: {error}; run pulumi up") from None


def read(api: Api, namespace: str) -> StoredLedger | None:
    """Returns the stored ledger, or None if the ledger's ConfigMap does not exist. Raises ApiError."""
    stored = api.find(below(_config_maps(namespace), LEDGER))
    return None if stored is None else stored_ledger(stored, namespace)


def _config_maps(namespace: str) -> ApiPath:
    return api_path("v1", "namespaces", namespace, "configmaps")


def stored_ledger(stored: Object, namespace: str) -> StoredLedger:
    metadata = stored["metadata"]
    return StoredLedger(
        namespace=namespace,
        resource_version=metadata["resourceVersion"],
        finalizers=tuple(metadata.get("finalizers") or ()),
        deleting="deletionTimestamp" in metadata,
        text=(stored.get("data") or {}).get(LEDGER_KEY),
    )
