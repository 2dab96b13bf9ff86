"""The locks that runs hold on a stack in a `file://` backend.

Source: github.com/pulumi/pulumi/pkg/v3/backend/diy/lock.go (lockContent, stackLockDir).
"""

import json
import os
import pwd
import socket
from dataclasses import dataclass
from pathlib import Path

_SCHEME = "file://"


@dataclass(frozen=True)
class Lock:
    """Who holds the stack, by what the lock's file says."""

    pid: int
    username: str
    hostname: str
    timestamp: str

    @property
    def is_stale(self) -> bool:
        """Its holder was a process of this user on this host, and is gone. Of others nothing can be known."""
        return (self.username, self.hostname) == (_user(), socket.gethostname()) and not _lives(self.pid)

    def __str__(self) -> str:
        return f"{self.username}@{self.hostname} (process {self.pid}), since {self.timestamp}"


def locks(backend: str, project: str, stack: str) -> list[Lock]:
    """All locks on the stack; none where the backend is no folder, and Pulumi itself has to say who holds it."""
    if not backend.startswith(_SCHEME):
        return []
    root = Path(backend.removeprefix(_SCHEME).partition("?")[0]).expanduser()
    files = (root / ".pulumi" / "locks" / "organization" / project / stack).glob("*.json")
    contents = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(files)]
    return [
        Lock(content["pid"], content["username"], content["hostname"], content["timestamp"]) for content in contents
    ]


def _user() -> str:
    """As Go's os/user finds it; in a container the id may have no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER", "")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
