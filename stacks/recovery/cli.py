"""Runs the pinned Pulumi CLI on one stack."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Linux limits a command line to 2 MiB, and a URN has about 100 bytes.
_MOST_TARGETS = 2000
# Source: github.com/pulumi/pulumi/pkg/v3/backend/diy (lock.go, backend.go).
_LOCKED, _EXISTS = "the stack is currently locked by", "already exists"


class CliError(Exception):
    """A command of Pulumi's CLI failed. The message of the error contains the command's output."""


@dataclass(frozen=True)
class Stack:
    """A stack of the project in `folder`.

    `environment` has the environment variables of the CLI, for instance the backend. `program` is the path of the CLI.
    """

    name: str
    folder: Path
    environment: Mapping[str, str]
    program: Path

    @property
    def backend(self) -> str:
        """The URL of the backend; empty if Pulumi uses the backend of its last login."""
        return self.environment.get("PULUMI_BACKEND_URL", "")

    def export(self) -> Mapping[str, Any]:
        deployment: Mapping[str, Any] = json.loads(self._run("stack", "export"))
        return deployment

    def replace(self, deployment: Mapping[str, Any]) -> None:
        """Replaces the state of the stack."""
        self._run("stack", "import", given=json.dumps(deployment))

    def unlock(self) -> None:
        self._run("cancel", "--yes")

    def refresh(self, urns: Sequence[str]) -> None:
        """Refreshes the resources, or all resources of the stack if the URNs do not fit on a command line."""
        self._change("refresh", urns if len(urns) <= _MOST_TARGETS else ())

    def destroy(self, urns: Sequence[str]) -> None:
        self._change("destroy", urns)

    def _change(self, command: str, urns: Sequence[str]) -> None:
        targets = [f"--target={urn}" for urn in urns]
        self._run(command, "--yes", "--skip-preview", "--suppress-outputs", "--suppress-progress", *targets)

    def lock_holder(self) -> str | None:
        """Returns the runs that have locked the stack, or None. Raises CliError.

        Pulumi has no command that reads the locks. It refuses to give a stack the name of an existing stack, but
        locks the stack first.
        """
        try:
            self._run("stack", "rename", self.name)
        except CliError as error:
            if _LOCKED in str(error):
                return ", ".join(re.findall("created by (.+)", str(error)))
            if _EXISTS not in str(error):
                raise
        return None

    def select(self) -> None:
        """Creates the stack in its backend if it is missing. Raises CliError."""
        self._run("stack", "select", "--create")

    def init(self) -> None:
        """Creates the stack in its backend. Raises CliError."""
        self._run("stack", "init")

    def _run(self, *arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [self.program, *arguments, "--stack", self.name, "--non-interactive", "--color", "never"],
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
def scratch_copy(stack: Stack, deployment: Mapping[str, Any]) -> Iterator[Stack]:
    """Yields a copy of the stack with this state.

    The copy of the stack is in a temporary folder, and has a temporary backend.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("Pulumi.yaml", f"Pulumi.{stack.name}.yaml"):
            shutil.copy(stack.folder / file, folder)
        # Without the link to `.venv`, Pulumi would create a Python environment.
        (folder / ".venv").symlink_to(stack.folder / ".venv")
        state = folder / "state"
        state.mkdir()
        own = {"PULUMI_BACKEND_URL": f"file://{state}", "PULUMI_SKIP_CHECKPOINTS": "true"}
        copy = Stack(stack.name, folder, {**stack.environment, **own}, stack.program)
        copy.init()
        copy.replace(deployment)
        yield copy


@contextmanager
def in_project(stack: Stack, project: str) -> Iterator[Stack]:
    """Yields the stack of the same name in another project of the same backend. Creates this stack if it is missing."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Pulumi.yaml").write_text(f"name: {project}\nruntime: yaml\n", encoding="utf-8")
        other = Stack(stack.name, Path(folder), stack.environment, stack.program)
        other.select()
        yield other
