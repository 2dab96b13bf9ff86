"""Reads the locks of a stack in a `file://` backend, and removes the incomplete attribute files of a killed run.

The backend stores a state file and an attribute file for each stack. It replaces the state file in one step, but it
empties the attribute file before it writes the new attributes. Pulumi can read a state without an attribute file, and
not with an incomplete one.

Source: github.com/pulumi/pulumi/pkg/v3/backend/diy/lock.go (lockContent, stackLockDir); gocloud.dev/blob/fileblob
(attrs.go).
"""

import json
import os
import pwd
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from stacks.engine import Engine, EngineError

_SCHEME = "file://"


def is_stale(engine: Engine) -> bool:
    """Returns True if a killed run has locked the stack. Then also removes incomplete attribute files.

    Raises EngineError if the process of a lock still runs or is unknown. In another backend than a folder, Pulumi
    itself refuses a locked stack, and nobody can know if the process of another machine runs.
    """
    files = _files(engine, "locks/organization/{project}/{stack}", "*.json")
    for file in files:
        lock = json.loads(file.read_text(encoding="utf-8"))
        if not has_ended(lock):
            holder = f"{lock['username']}@{lock['hostname']} (process {lock['pid']}), since {lock['timestamp']}"
            raise EngineError(
                f"{engine.stack} is in use by {holder}. Wait; or, if you know that it is gone: "
                f"PULUMI_BACKEND_URL={_backend(engine)} {engine.pulumi} cancel --stack {engine.stack}"
            )
    for file in _files(engine, "stacks/{project}", f"{engine.stack}.json*.attrs") if files else ():
        try:
            json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            file.unlink()
    return bool(files)


def has_ended(lock: Mapping[str, Any]) -> bool:
    """Returns True if a process of the same user on the same host took the lock, and has ended.

    The processes of other users or hosts cannot be seen.
    """
    return (lock["username"], lock["hostname"]) == (_user(), socket.gethostname()) and not _lives(lock["pid"])


def state_files(engine: Engine) -> list[Path]:
    """Returns the state's file.

    In another backend than a folder, and before the first run, there is none. The backup of a state is none either,
    which `pulumi stack rm` leaves.
    """
    states = (f"{engine.stack}.json", f"{engine.stack}.json.gz")
    return [file for file in _files(engine, "stacks/{project}", f"{engine.stack}.json*") if file.name in states]


def _files(engine: Engine, folder: str, pattern: str) -> list[Path]:
    """Returns the files of the backend, if it is a folder."""
    if not _backend(engine).startswith(_SCHEME):
        return []
    root = Path(_backend(engine).removeprefix(_SCHEME).partition("?")[0]).expanduser() / ".pulumi"
    project = yaml.safe_load((engine.root / "Pulumi.yaml").read_text(encoding="utf-8"))["name"]
    return sorted((root / folder.format(project=project, stack=engine.stack)).glob(pattern))


def _backend(engine: Engine) -> str:
    return engine.environment.get("PULUMI_BACKEND_URL", "")


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
