"""Runs the pinned Pulumi on one stack.

Defines Pulumi's environment variables, the flags that are refused, and the creation of a stack.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The project's policy pack is loaded, together with other policy packs of the operator. Pulumi does not print the
# outputs, because they are long. `pulumi stack output` prints them.
GATED = ("--policy-pack", "policy", "--suppress-outputs")

_STATE = ".state"
_SKIP_CHECKPOINTS = "PULUMI_SKIP_CHECKPOINTS"
# Linux limits a command line to 2 MiB, and a URN has about 100 bytes.
_MOST_TARGETS = 2000
_CREATED = "Created stack"  # what Pulumi prints
_STACK_NAME = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]{0,99}")
_ELSEWHERE = dict.fromkeys(
    ("--stack", "-s", "--cwd", "-C"), "the stack is --stack NAME (STACK=NAME) in this folder; leave it out"
)
_PART = dict.fromkeys(
    ("--target", "-t", "--target-dependents", "--target-replace", "--exclude", "-x", "--exclude-dependents"),
    "the policy pack judges a stack as a whole; leave it out",
)
_GATED = {**_PART, "--policy-pack-config": "it can switch the policy pack off; leave it out"}


class EngineError(Exception):
    """Raised if a command cannot start. The message of the error has one line for each reason."""


@dataclass(frozen=True)
class Engine:
    """Runs Pulumi on one stack of the project in the directory `root`."""

    root: Path
    stack: str
    environment: Mapping[str, str]

    @classmethod
    def of(cls, stack: str, root: Path) -> "Engine":
        """Returns Pulumi with the environment of this process.

        Raises EngineError if a stack cannot have the name.
        """
        if not _STACK_NAME.fullmatch(stack):
            raise EngineError(f"{stack!r} is no stack's name: write the NAME of a Pulumi.NAME.yaml, such as lab")
        return cls(root, stack, environment(root, os.environ))

    @property
    def pulumi(self) -> Path:
        """The pinned program. Raises EngineError if the program is not installed."""
        program = self.root / ".toolchain" / "bin" / "pulumi"
        if not program.exists():
            raise EngineError(f"{program} is not there; run make toolchain")
        return program

    @property
    def stack_file(self) -> Path:
        return self.root / f"Pulumi.{self.stack}.yaml"

    def existing_stack_file(self) -> Path:
        """The same. Raises EngineError if the stack has no stack file."""
        if not self.stack_file.exists():
            raise EngineError(f"{self.stack_file} is not there; begin with make new-stack STACK={self.stack}")
        return self.stack_file

    def export(self) -> Mapping[str, Any]:
        """Returns the state, as `pulumi stack export` prints it. Raises EngineError."""
        deployment: Mapping[str, Any] = json.loads(self._output("stack", "export"))
        return deployment

    def cancel(self) -> None:
        """Removes the lock of a killed run. Raises EngineError."""
        self._output("cancel", "--yes")

    def refresh(self, urns: Sequence[str]) -> None:
        """Reads the resources, or all resources without any URN, from the cluster again.

        Pulumi also forgets interrupted operations.

        Raises EngineError, for example if another run has locked the stack.
        """
        targets = [f"--target={urn}" for urn in urns] if len(urns) <= _MOST_TARGETS else []
        quiet = ("--skip-preview", "--suppress-outputs", "--suppress-progress", "--clear-pending-creates")
        self._output("refresh", "--yes", *quiet, *targets)

    def _output(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(self.pulumi), *arguments, "--stack", self.stack, "--non-interactive", "--color", "never"],
            cwd=self.root,
            env={**self.environment, **self.state_at_the_end()},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise EngineError(f"pulumi {arguments[0]}: {(done.stderr + done.stdout).strip()}")
        return done.stdout

    def state_at_the_end(self) -> Mapping[str, str]:
        """Returns the environment variables of a run that writes the state only at the end, and not at each step."""
        return {} if _SKIP_CHECKPOINTS in self.environment else {_SKIP_CHECKPOINTS: "true"}

    def program_files(self) -> list[Path]:
        """The Python files of the program and of the policy pack, and the stack file."""
        return [self.stack_file, *self.root.glob("*.py"), *self.root.glob("[!.]*/**/*.py")]

    def select(self) -> bool:
        """Creates the stack if the backend does not have it yet. Returns True if it did. Raises EngineError.

        When Pulumi adds the salt of a new stack to the stack file, Pulumi also removes blank lines. Therefore Pulumi
        gets a copy of the project, and this method appends the salt to the real stack file.
        """
        file = self.existing_stack_file()
        (self.root / _STATE).mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(shutil.copy(file, folder))
            shutil.copy(self.root / "Pulumi.yaml", folder)
            command = [str(self.pulumi), "-C", folder, "stack", "select", "--create", "--stack", self.stack]
            done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise EngineError((done.stderr + done.stdout).strip())
            salt, text = _salt(copy.read_text(encoding="utf-8")), file.read_text(encoding="utf-8")
        if salt and not _salt(text):  # a stack with some secrets providers has no salt
            file.write_text(f"{text.removesuffix(chr(10))}\n{salt}\n", encoding="utf-8")
        return _CREATED in done.stdout


def _salt(text: str) -> str:
    found = re.search(r"^encryptionsalt:.*$", text, re.MULTILINE)
    return found[0] if found else ""


def environment(root: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables `given`, with the project's own tools first in PATH.

    The state is the project's local state, unless `given` names another state.
    """
    passphrase = {} if given.get("PULUMI_CONFIG_PASSPHRASE_FILE") else {"PULUMI_CONFIG_PASSPHRASE": ""}
    return {
        "PULUMI_BACKEND_URL": f"file://{root / _STATE}",
        **passphrase,  # the passphrase may be empty, because the stacks contain no secrets
        "PULUMI_HOME": str(root / ".toolchain" / "pulumi-home"),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_ERROR_OUTPUT_STRING": "1",
        "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",  # Pulumi uses only the pinned provider, even if PATH has another
        **given,
        "PATH": os.pathsep.join(
            [str(root / ".toolchain" / "bin"), str(root / ".venv" / "bin"), given.get("PATH", os.defpath)]
        ),
    }


def refuse_flags(flags: Sequence[str], *, gated: bool) -> None:
    """Raises EngineError with one line for each flag that is refused.

    Refuses flags that select another stack. With `gated`, also refuses flags that hide a part of the stack from the
    policy pack.
    """
    refused = _ELSEWHERE | (_GATED if gated else {})
    if lines := [f"{flag}: {refused[flag]}" for word in flags for flag in _named(word) if flag in refused]:
        raise EngineError("\n".join(lines))


def _named(word: str) -> Iterator[str]:
    """Yields the flags in an argument. For example, the argument -dt contains the flags -d and -t."""
    name = word.partition("=")[0]
    if name.startswith("-") and not name.startswith("--"):
        yield from (f"-{letter}" for letter in name[1:])
    else:
        yield name
