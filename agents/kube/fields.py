"""Reads the fields of API objects as values with a bounded length, alphabet and range.

Somebody other than an administrator may have written each field. docs/choosing/fields.md lists these fields.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from reprlib import repr as shortened

from agents.kube.errors import Object
from agents.runtime.errors import AgentError

# The longest annotation or other text that an agent reads, in characters.
LONGEST_TEXT = 1024
LARGEST_AMOUNT = 2**63 - 1  # Kubernetes stores amounts in 63 bits.
# A time outside these limits is wrong. The longest grace period that the API server can add to a time is 292 years.
EARLIEST, LATEST = datetime(1900, 1, 1, tzinfo=UTC), datetime(2400, 1, 1, tzinfo=UTC)
_LONGEST_TIME = 40
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_UID = re.compile(r"[A-Za-z0-9][-._A-Za-z0-9]{0,252}")


class FieldError(AgentError):
    """A field of an object is unreadable, and the message names the field."""


def is_name(value: object) -> bool:
    """Returns True if the text can be the name of an object: a DNS subdomain of at most 253 characters."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def name_at(mapping: Object, field: str) -> str:
    """Returns the name of an object. Raises FieldError if the value is not valid."""
    value = mapping.get(field)
    if not isinstance(value, str) or not is_name(value):
        raise unreadable(field, "the name of an object", value)
    return value


def uid_at(mapping: Object, field: str = "uid") -> str:
    """Returns a UID. Raises FieldError if the value is not valid."""
    value = mapping.get(field)
    if not isinstance(value, str) or not _UID.fullmatch(value):
        raise unreadable(field, "a UID", value)
    return value


def text_at(mapping: Object, field: str, most: int = LONGEST_TEXT) -> str:
    """Returns the text, or "" if the text is absent, longer than `most`, or not printable ASCII."""
    value = mapping.get(field)
    return value if isinstance(value, str) and is_plain(value, most) else ""


def is_plain(value: str, most: int = LONGEST_TEXT) -> bool:
    return len(value) <= most and value.isascii() and value.isprintable()


def integer_at(mapping: Object, field: str, default: int, low: int = 0, high: int = LARGEST_AMOUNT) -> int:
    """Returns the whole number in the field, or the default if the field is absent. Raises FieldError if the value is
    not valid.
    """
    value = mapping.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise unreadable(field, f"a whole number from {low} to {high}", value)
    return value


def time_at(mapping: Object, field: str) -> datetime | None:
    """Returns the time in the field, or None if the field is absent. Raises FieldError if the value is not valid."""
    value = mapping.get(field)
    if not value and not isinstance(value, bool | int | float):
        return None
    if isinstance(value, str) and len(value) <= _LONGEST_TIME:
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            found = LATEST
        if found.tzinfo is not None and EARLIEST <= found < LATEST:
            return found
    raise unreadable(field, "a time of RFC 3339", value)


def unreadable(field: str, wanted: str, value: object) -> FieldError:
    """Returns the error for a field with a wrong value."""
    return FieldError(f"{field}: is not {wanted}: {shortened(value)}")


def uid_of(item: Object) -> str:
    """Returns the object's UID, or "" for any other value."""
    metadata = item.get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, Mapping) else None
    return uid if isinstance(uid, str) and _UID.fullmatch(uid) else ""


def named(item: Object) -> str:
    """Returns the object's name for a message, even if the object's metadata is unreadable."""
    metadata = item.get("metadata")
    if not isinstance(metadata, Mapping):
        return "?"
    parts = [metadata[field] for field in ("namespace", "name") if field in metadata]
    return "/".join(str(part) if is_name(part) else "?" for part in parts)
