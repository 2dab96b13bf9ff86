"""The project's Python environment, .venv: exactly what requirements.lock holds."""

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

from toolchain.installer.console import Console, Runner


@dataclass(frozen=True)
class Environment:
    checkout: Path
    uv: Path

    def is_current(self) -> bool:
        return self._python.exists() and self._stamp.exists() and self._stamp.read_text() == self._lock_digest()

    def sync(self, console: Console) -> None:
        """Makes .venv if it or its Python is gone, and brings it to the lock. Safe to repeat at any point."""
        console.line(".venv: from requirements.lock, each package proven by its hash")
        runner = Runner(console, self.checkout / ".toolchain" / "venv.log")
        if not self._python.exists():
            runner.run("uv venv", [str(self.uv), "venv", "--clear", "--python", sys.executable, str(self._folder)])
        command = [str(self.uv), "pip", "sync", "--require-hashes", "--python", str(self._python), str(self._lock)]
        runner.run("uv pip sync", command)
        self._stamp.write_text(self._lock_digest())

    @property
    def _folder(self) -> Path:
        return self.checkout / ".venv"

    @property
    def _python(self) -> Path:
        return self._folder / "bin" / "python"

    @property
    def _lock(self) -> Path:
        return self.checkout / "requirements.lock"

    @property
    def _stamp(self) -> Path:
        return self._folder / "requirements.lock.sha256"

    def _lock_digest(self) -> str:
        return hashlib.sha256(self._lock.read_bytes()).hexdigest()
