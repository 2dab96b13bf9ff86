"""Reads the fields of API objects that nobody validates, such as annotations and owner references.

Whoever may edit an object may write any text into these fields. docs/choosing/fields.md lists them. The API server has
validated all other fields.
"""

import re
from datetime import datetime

from agents.kube.errors import Object
from agents.runtime.errors import AgentError

# The longest annotation or other text that an agent reads, in characters.
LONGEST_TEXT = 1024
LARGEST_AMOUNT = 2**63 - 1  # Kubernetes stores amounts in 63 bits.
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


class FieldError(AgentError):
    """A field of an object is unreadable, and the message names the field."""


def is_name(value: str) -> bool:
    """Returns True if the text can be the name of an object: a DNS subdomain of at most 253 characters."""
    return _NAME.fullmatch(value) is not None


def text_at(mapping: Object, field: str, most: int = LONGEST_TEXT) -> str:
    """Returns the text, or "" if the text is absent, longer than `most`, or not printable ASCII."""
    value = mapping.get(field) or ""
    return value if len(value) <= most and value.isascii() and value.isprintable() else ""


def time_at(mapping: Object, field: str) -> datetime | None:
    """Returns the time in the field, or None if the field is absent."""
    value = mapping.get(field)
    return datetime.fromisoformat(value) if value else None


def uid_of(item: Object) -> str:
    uid: str = item["metadata"]["uid"]
    return uid


def named(item: Object) -> str:
    """Returns the object's name for a message."""
    metadata = item["metadata"]
    return "/".join(metadata[field] for field in ("namespace", "name") if field in metadata)
