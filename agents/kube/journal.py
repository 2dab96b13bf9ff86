"""Journals: the state of a CronJob across its runs, in a ConfigMap that its component declares empty.

If two runs read the same version and write, one succeeds. The other must not act on its outdated reading.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.kube.client import Api, ApiError, Object
from agents.runtime.errors import AgentError
from tenancy.names import JOURNAL_KEY, JOURNAL_WRITE_KEY


class JournalError(AgentError):
    """The ConfigMap does not contain a journal."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The JSON content, and the version of the ConfigMap. A new journal is empty."""

    version: str
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The journal of one agent. Needs get and patch on its ConfigMap."""

    api: Api
    namespace: str
    name: str

    def read(self) -> Record:
        """Reads the journal. Raises ApiError and JournalError."""
        return self._record(self.api.get(self._path))

    def find(self) -> Record | None:
        """Reads the journal; None if there is no such ConfigMap."""
        stored = self.api.find(self._path)
        return None if stored is None else self._record(stored)

    def write(self, content: Mapping[str, Any], *, after: Record) -> Record | None:
        """Replaces the content, or returns None if another run wrote since `after` was read: then do not act.

        Raises ApiError; then the content may have been written or not.
        """
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        data = {JOURNAL_KEY: text, JOURNAL_WRITE_KEY: secrets.token_hex(8)}
        patch = {"metadata": {"resourceVersion": after.version}, "data": data}
        try:
            return self._record(self.api.merge_patch(self._path, patch))
        except ApiError as error:
            if not error.outdated:
                raise
        # The answer to an earlier attempt may have been lost: then the conflict is with our own write.
        stored = self.api.find(self._path)
        return self._record(stored) if stored is not None and stored.get("data") == data else None

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{self.name}"

    def _record(self, stored: Object) -> Record:
        return Record(version=stored["metadata"]["resourceVersion"], content=content_of(stored))


def content_of(stored: Object) -> Mapping[str, Any]:
    """The content of a journal's ConfigMap. Raises JournalError."""
    text = (stored.get("data") or {}).get(JOURNAL_KEY, "{}")
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        name = stored["metadata"]["name"]
        raise JournalError(f"ConfigMap {name}, {JOURNAL_KEY}: is not a JSON object; delete the key to start over")
    return content
