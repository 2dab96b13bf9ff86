"""Reads the locks of a stack, and repairs the attribute files that a killed run leaves in a `file://` backend.

The backend stores a state file and an attribute file for each stack. The backend replaces the state file in one step.
The backend empties the attribute file before it writes the new attributes. Therefore a killed run can leave an
incomplete attribute file.

Source: github.com/pulumi/pulumi/pkg/v3/backend/diy/lock.go (lockContent, stackLockDir); gocloud.dev/blob/fileblob
(attrs.go).
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
        """True if a process of the same user on the same host took the lock, and has ended.

        This function cannot check processes of other users or hosts. Therefore locks of other users or hosts do not
        count as stale.
        """
        return (self.username, self.hostname) == (_user(), socket.gethostname()) and not _lives(self.pid)

    def __str__(self) -> str:
        return f"{self.username}@{self.hostname} (process {self.pid}), since {self.timestamp}"


def locks(backend: str, project: str, stack: str) -> list[Lock]:
    """Returns all locks of the stack.

    If the backend is not a folder, returns an empty list, because Pulumi itself checks the locks of such a backend.
    """
    root = _root(backend)
    files = (root / "locks" / "organization" / project / stack).glob("*.json") if root else ()
    contents = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(files)]
    return [
        Lock(content["pid"], content["username"], content["hostname"], content["timestamp"]) for content in contents
    ]


def remove_torn_attributes(backend: str, project: str, stack: str) -> None:
    """Deletes incomplete attribute files.

    Pulumi can read a state if its attribute file is missing. Pulumi cannot read a state if its attribute file is
    incomplete.
    """
    root = _root(backend)
    for file in (root / "stacks" / project).glob(f"{stack}.json*.attrs") if root else ():
        try:
            json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            file.unlink()


def is_folder(backend: str) -> bool:
    """Returns True for a `file://` backend."""
    return backend.startswith(_SCHEME)


def _root(backend: str) -> Path | None:
    if not is_folder(backend):
        return None
    return Path(backend.removeprefix(_SCHEME).partition("?")[0]).expanduser() / ".pulumi"


def _user() -> str:
    """Returns the name of the user, as Go's os/user finds it. In a container, the user id sometimes has no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER", "")


def _lives(pid: int) -> bool:
    """Returns True if the process runs. For a zombie, the function returns False, because a zombie has ended."""
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
    except OSError:  # The system is not Linux, or the process has ended.
        return False
    return state == ["Z"]
