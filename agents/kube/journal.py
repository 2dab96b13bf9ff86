"""Reads and writes journals, which keep the state of a CronJob between its runs. A journal is a ConfigMap, which the
component creates empty.

If two runs read the same version and both write, only one write succeeds. The other run must not act.
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
    """The ConfigMap contains no journal."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A journal's JSON content, and the resourceVersion of its ConfigMap. A new journal is empty."""

    version: str
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The journal of one agent. The agent needs the verbs get and patch on the ConfigMap."""

    api: Api
    namespace: str
    name: str

    def read(self) -> Record:
        """Reads the journal. Raises ApiError and JournalError."""
        return self._record(self.api.get(self._path))

    def find(self) -> Record | None:
        """Reads the journal, or returns None if the ConfigMap does not exist."""
        stored = self.api.find(self._path)
        return None if stored is None else self._record(stored)

    def write(self, content: Mapping[str, Any], *, after: Record) -> Record | None:
        """Replaces the content. Returns None if another run wrote the journal after `after` was read. The caller must
        then not act.

        Raises ApiError. Even if the result is None, the content may have been written.
        """
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        data = {JOURNAL_KEY: text, JOURNAL_WRITE_KEY: secrets.token_hex(8)}
        patch = {"metadata": {"resourceVersion": after.version}, "data": data}
        try:
            return self._record(self.api.merge_patch(self._path, patch))
        except ApiError as error:
            if not error.outdated:
                raise
        # If the response to the first attempt was lost, this client's first write caused the conflict.
        stored = self.api.find(self._path)
        return self._record(stored) if stored is not None and stored.get("data") == data else None

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{self.name}"

    def _record(self, stored: Object) -> Record:
        return Record(version=stored["metadata"]["resourceVersion"], content=content_of(stored))


def content_of(stored: Object) -> Mapping[str, Any]:
    """Returns the content of a journal's ConfigMap. Raises JournalError."""
    text = (stored.get("data") or {}).get(JOURNAL_KEY, "{}")
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        name = stored["metadata"]["name"]
        raise JournalError(f"ConfigMap {name}, {JOURNAL_KEY}: is not a JSON object; delete the key to start over")
    return content
