"""The project's Python environment, .venv: exactly what requirements.lock holds."""

import hashlib
import sys
from pathlib import Path

from toolchain.installer.console import Console
from toolchain.installer.store import locked


def bring_up_to_date(checkout: Path, console: Console) -> None:
    """Makes .venv if it or its Python is gone, and brings it to the lock file. Safe to repeat at any point."""
    lock, folder, shelf = checkout / "requirements.lock", checkout / ".venv", checkout / ".toolchain"
    python, stamp, uv = folder / "bin" / "python", folder / "requirements.lock.sha256", str(shelf / "bin" / "uv")
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()

    def is_current() -> bool:
        return python.exists() and stamp.exists() and stamp.read_text() == digest

    if is_current():
        return
    with locked(shelf / "venv.lock", lambda: console.line(".venv: another run is making it; waiting")):
        if is_current():
            return
        console.line(".venv: from requirements.lock, each package proven by its hash")
        log = shelf / "venv.log"
        if not python.exists():
            console.run("uv venv", [uv, "venv", "--clear", "--python", sys.executable, str(folder)], log)
        sync = [uv, "pip", "sync", "--require-hashes", "--python", str(python), str(lock)]
        console.run("uv pip sync", sync, log)
        stamp.write_text(digest)
