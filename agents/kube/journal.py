"""A CronJob's state across its runs: a small record in a ConfigMap that its component declares empty.

Of two runs that write after the same reading one wins; the other learns that it must not act on what it read.
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
    """The ConfigMap holds something else than a journal."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The content, JSON, and the version that it was read at; a journal that nobody wrote yet is empty."""

    version: str
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The journal of one agent. Needs get and patch on its ConfigMap."""

    api: Api
    namespace: str
    name: str

    def read(self) -> Record:
        """Raises ApiError, and JournalError for what is no journal: what it said is not known then."""
        return self._record(self.api.get(self._path))

    def find(self) -> Record | None:
        """As `read`; None where there is no such ConfigMap."""
        stored = self.api.find(self._path)
        return None if stored is None else self._record(stored)

    def write(self, content: Mapping[str, Any], *, after: Record) -> Record | None:
        """Replaces the content; None where anybody wrote since `after` was read, and nothing is written then.

        Write before acting: who gets None must not act. Raises ApiError; whether the content was written is then
        not known.
        """
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        data = {JOURNAL_KEY: text, JOURNAL_WRITE_KEY: secrets.token_hex(8)}
        patch = {"metadata": {"resourceVersion": after.version}, "data": data}
        try:
            return self._record(self.api.merge_patch(self._path, patch))
        except ApiError as error:
            if not error.outdated:
                raise
        # The answer to an attempt before this one may have been lost: the conflict is then with our own write.
        stored = self.api.find(self._path)
        return self._record(stored) if stored is not None and stored.get("data") == data else None

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{self.name}"

    def _record(self, stored: Object) -> Record:
        return Record(version=stored["metadata"]["resourceVersion"], content=content_of(stored))


def content_of(stored: Object) -> Mapping[str, Any]:
    """What a journal's ConfigMap holds. Raises JournalError."""
    text = (stored.get("data") or {}).get(JOURNAL_KEY, "{}")
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        name = stored["metadata"]["name"]
        raise JournalError(f"ConfigMap {name}, {JOURNAL_KEY}: is not a JSON object; delete the key to start over")
    return content
