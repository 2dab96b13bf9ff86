"""Makes the project's Python environments, which contain exactly the packages of their lock files."""

import hashlib
import sys
from pathlib import Path

from toolchain.installer.console import run, say
from toolchain.installer.store import locked

# Maps the lock file of each environment to its folder, as paths in the checkout.
FOLDERS = {"requirements.lock": ".venv", "requirements-docs.lock": ".toolchain/docs"}


def bring_up_to_date(checkout: Path, lock_name: str) -> None:
    """Makes the environment, or installs exactly the packages of the lock file if it has others."""
    lock, folder, shelf = checkout / lock_name, checkout / FOLDERS[lock_name], checkout / ".toolchain"
    python, stamp, uv = folder / "bin" / "python", folder / f"{lock_name}.sha256", str(shelf / "bin" / "uv")
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    with locked(shelf / "venv.lock", folder.name):
        if python.exists() and stamp.exists() and stamp.read_text() == digest:
            return
        say(f"{folder.name}: from {lock_name}, each package proven by its hash")
        log = shelf / "venv.log"
        if not python.exists():
            run("uv venv", [uv, "venv", "--clear", "--python", sys.executable, str(folder)], log)
        run("uv pip sync", [uv, "pip", "sync", "--require-hashes", "--python", str(python), str(lock)], log)
        stamp.write_text(digest)
