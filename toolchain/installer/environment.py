"""Makes the project's Python environments, which contain exactly the packages of their lock files."""

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

from toolchain.installer.console import Console
from toolchain.installer.store import locked


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A lock file and the folder of its environment, as paths in the checkout."""

    lock: str
    folder: str


PROJECT = Environment(lock="requirements.lock", folder=".venv")
DOCS = Environment(lock="requirements-docs.lock", folder=".toolchain/docs")


def bring_up_to_date(checkout: Path, environment: Environment, console: Console) -> None:
    """Makes the environment if it does not exist, and installs exactly the packages of the lock file.

    If the environment is up to date, changes nothing.
    """
    lock, folder, shelf = checkout / environment.lock, checkout / environment.folder, checkout / ".toolchain"
    python, stamp, uv = folder / "bin" / "python", folder / f"{lock.name}.sha256", str(shelf / "bin" / "uv")
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()

    def is_current() -> bool:
        return python.exists() and stamp.exists() and stamp.read_text() == digest

    if is_current():
        return
    name = folder.name
    with locked(shelf / "venv.lock", lambda: console.line(f"{name}: another run is making it; waiting")):
        if is_current():
            return
        console.line(f"{name}: from {lock.name}, each package proven by its hash")
        log = shelf / "venv.log"
        if not python.exists():
            console.run("uv venv", [uv, "venv", "--clear", "--python", sys.executable, str(folder)], log)
        sync = [uv, "pip", "sync", "--require-hashes", "--python", str(python), str(lock)]
        console.run("uv pip sync", sync, log)
        stamp.write_text(digest)
