"""The pinned Pulumi CLI, on a stack in some backend."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PULUMI = Path(__file__).resolve().parents[2] / ".toolchain" / "bin" / "pulumi"


class CliError(Exception):
    """A command failed; the message is what it said."""


@dataclass(frozen=True)
class Stack:
    """A stack of the project in `folder`; `environment` names the backend."""

    name: str
    folder: Path
    environment: Mapping[str, str]

    @property
    def backend(self) -> str:
        """The address that every command uses; empty where Pulumi's own login decides."""
        return self.environment.get("PULUMI_BACKEND_URL", "")

    def export(self) -> Mapping[str, Any]:
        deployment: Mapping[str, Any] = json.loads(self._run("stack", "export"))
        return deployment

    def replace(self, deployment: Mapping[str, Any]) -> None:
        """Makes that its state."""
        self._run("stack", "import", given=json.dumps(deployment))

    def unlock(self) -> None:
        self._run("cancel", "--yes")

    def refresh(self, urns: Sequence[str]) -> None:
        self._change("refresh", urns)

    def destroy(self, urns: Sequence[str]) -> None:
        self._change("destroy", urns)

    def _change(self, command: str, urns: Sequence[str]) -> None:
        targets = [f"--target={urn}" for urn in urns]
        self._run(command, "--yes", "--skip-preview", "--suppress-outputs", "--suppress-progress", *targets)

    def _run(self, *arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [PULUMI, *arguments, "--stack", self.name, "--non-interactive", "--color", "never"],
            cwd=self.folder,
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CliError(f"pulumi {' '.join(arguments[:2])}: {(done.stderr + done.stdout).strip()}")
        return done.stdout


@contextmanager
def scratch(stack: Stack, deployment: Mapping[str, Any]) -> Iterator[Stack]:
    """A copy of the stack in a backend of its own, with that state. The stack file is a copy too: `init` writes it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("Pulumi.yaml", f"Pulumi.{stack.name}.yaml"):
            shutil.copy(stack.folder / file, folder)
        (folder / ".venv").symlink_to(stack.folder / ".venv")  # or Pulumi would make one
        state = folder / "state"
        state.mkdir()
        copy = Stack(stack.name, folder, {**stack.environment, "PULUMI_BACKEND_URL": f"file://{state}"})
        copy._run("stack", "init")
        copy.replace(deployment)
        yield copy
