"""The lock and the attribute files that a killed run leaves in a `file://` backend.

A backend replaces a state in one step, but truncates the attributes next to it before it writes them. Source:
github.com/pulumi/pulumi/pkg/v3/backend/diy/lock.go (lockContent, stackLockDir); gocloud.dev/blob/fileblob (attrs.go).
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
    """The content of a lock file."""

    pid: int
    username: str
    hostname: str
    timestamp: str

    @property
    def is_stale(self) -> bool:
        """True if the holder was a process of this user on this host and has ended. Other holders cannot be checked."""
        return (self.username, self.hostname) == (_user(), socket.gethostname()) and not _lives(self.pid)

    def __str__(self) -> str:
        return f"{self.username}@{self.hostname} (process {self.pid}), since {self.timestamp}"


def locks(backend: str, project: str, stack: str) -> list[Lock]:
    """Returns all locks on the stack; none for a backend other than a folder, where Pulumi itself checks."""
    root = _root(backend)
    files = (root / "locks" / "organization" / project / stack).glob("*.json") if root else ()
    contents = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(files)]
    return [
        Lock(content["pid"], content["username"], content["hostname"], content["timestamp"]) for content in contents
    ]


def remove_torn_attributes(backend: str, project: str, stack: str) -> None:
    """Removes half-written attribute files. Pulumi reads the state without the file, but not with a torn one."""
    root = _root(backend)
    for file in (root / "stacks" / project).glob(f"{stack}.json*.attrs") if root else ():
        try:
            json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            file.unlink()


def _root(backend: str) -> Path | None:
    if not backend.startswith(_SCHEME):
        return None
    return Path(backend.removeprefix(_SCHEME).partition("?")[0]).expanduser() / ".pulumi"


def _user() -> str:
    """Returns the user's name as Go's os/user finds it; in a container the id may have no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER", "")


def _lives(pid: int) -> bool:
    """Returns False also for a process that has ended and that its parent has not waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:1]
    except OSError:  # no Linux, or gone meanwhile
        return False
    return state == ["Z"]
