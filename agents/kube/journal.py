"""Reads and writes journals. A journal keeps the data of an agent between the runs of its CronJob. A journal is a
ConfigMap. The component creates the ConfigMap without data.

If two runs read the same version of a journal and both write, only one write succeeds. A run that fails to write its
journal must not act.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.kube.client import Api, ApiError, Object
from agents.kube.paths import ApiPath, api_path
from agents.runtime.errors import AgentError
from tenancy.names import JOURNAL_KEY, JOURNAL_WRITE_KEY


class JournalError(AgentError):
    """The ConfigMap contains no journal."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The JSON content of a journal, and the resourceVersion of the journal's ConfigMap. A new journal is empty."""

    version: str
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The journal of one agent. The agent needs the verbs get and patch on the journal's ConfigMap."""

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
        """Replaces the content. Returns None if another run has written the journal after `after` was read. If the
        result is None, the caller must not act.

        Raises ApiError. Even if the result is None, the API server may have written the content.
        """
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        data = {JOURNAL_KEY: text, JOURNAL_WRITE_KEY: secrets.token_hex(8)}
        patch = {"metadata": {"resourceVersion": after.version}, "data": data}
        try:
            return self._record(self.api.merge_patch(self._path, patch))
        except ApiError as error:
            if not error.outdated:
                raise
        # If the response to the first attempt was lost, the second attempt conflicts with the first attempt's write.
        stored = self.api.find(self._path)
        return self._record(stored) if stored is not None and stored.get("data") == data else None

    @property
    def _path(self) -> ApiPath:
        return api_path("v1", "namespaces", self.namespace, "configmaps", self.name)

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
