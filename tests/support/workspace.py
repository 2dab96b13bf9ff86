"""Runs Pulumi's real engine and provider as an operator does.

The workspace has a copy of prod's stack file and a temporary state.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from toolchain.cluster.paths import CHECKOUT, TOOLCHAIN

# A higher value of GOGC saves CPU time of Go programs, and costs host memory. PULUMI_PYTHON_CMD names the Python that
# Pulumi runs.
_PASSED_ON = {"GOGC", "PULUMI_PYTHON_CMD"}
COMMAND_SECONDS = 900  # The time limit is far longer than any command takes, even on a busy machine.
PROGRAM = (
    "Pulumi.yaml",
    "__main__.py",
    "agents",
    "components",
    "gpumem",
    "policy",
    "stacks",
    "tenancy",
    ".toolchain",
    ".venv",
)


@dataclass(frozen=True)
class Outcome:
    """The exit code of a command, and its standard output and error output together."""

    code: int
    text: str


@dataclass(frozen=True)
class Workspace:
    """A folder with a Pulumi project and the backend that stores its state."""

    folder: Path
    env: Mapping[str, str]

    def pulumi(self, *arguments: str, cwd: Path, **env: str) -> Outcome:
        """Runs the pinned Pulumi CLI."""
        return self.run(str(TOOLCHAIN / "bin" / "pulumi"), *arguments, "--non-interactive", cwd=cwd, **env)

    def run(self, *command: str, cwd: Path, **env: str) -> Outcome:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        return Outcome(done.returncode, done.stdout)

    def engine(self, command: str, stack: str) -> tuple[str, ...]:
        """Returns the command line of the pinned CLI for `up` or `destroy`, without a preview."""
        given = ("--yes", "--skip-preview", "--non-interactive", "--stack", stack)
        return (str(TOOLCHAIN / "bin" / "pulumi"), command, *given)

    def state(self, stack: str) -> Mapping[str, Any]:
        """Returns the state that the engine has saved up to now.

        The state has the keys `resources` and `pending_operations`.
        """
        path = self.folder / "state" / ".pulumi" / "stacks" / "gpu-tenancy" / f"{stack}.json"
        saved = json.loads(path.read_text())["checkpoint"].get("latest") if path.exists() else None
        return saved or {}

    def preview(
        self,
        *arguments: str,
        project: Path | None = None,
        stack: str = "prod",
        policy: Path = CHECKOUT / "policy",
        **env: str,
    ) -> Outcome:
        """Runs `pulumi preview` with the policy pack, by default on the project of this workspace."""
        project = project or self.project
        selected = self.pulumi("stack", "select", "--create", "--stack", stack, cwd=project, **env)
        if selected.code:
            return selected
        pack = ("--policy-pack", str(policy), "--suppress-progress", "--suppress-outputs")
        return self.pulumi("preview", "--stack", stack, *pack, "--color", "never", *arguments, cwd=project, **env)

    def unreachable(self) -> Path:
        """Writes a kubeconfig for a server that does not exist."""
        path = self.folder / "unreachable"
        path.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: gone\n"
            "clusters: [{name: gone, cluster: {server: 'https://127.0.0.1:1'}}]\n"
            "contexts: [{name: gone, context: {cluster: gone, user: nobody}}]\n"
            "users: [{name: nobody, user: {token: none}}]\n"
        )
        return path

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def stack_file(self) -> Path:
        return self.project / "Pulumi.prod.yaml"

    def reset(self) -> None:
        """Replaces the stack file by the checkout's stack file."""
        shutil.copy(CHECKOUT / "Pulumi.prod.yaml", self.project)

    def change(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Calls the function `change` with the stack file's settings, and writes the changed settings to the file.

        The keys of the settings lack the prefix `gpu-tenancy:`.
        """
        document = yaml.safe_load(self.stack_file.read_text())
        config = {key.partition(":")[2]: value for key, value in document["config"].items()}
        change(config)
        document["config"] = {f"gpu-tenancy:{key}": value for key, value in config.items()}
        self.stack_file.write_text(yaml.safe_dump(document, sort_keys=False))


def workspace(folder: Path) -> Workspace:
    """Creates a workspace in `folder` with the project's tools and no cluster.

    The workspace contains symbolic links to the program in this checkout. The stack file is a copy, because tests
    change the stack file.
    """
    project, state = folder / "project", folder / "state"
    for made in (project, state):
        made.mkdir()
    for name in PROGRAM:
        (project / name).symlink_to(CHECKOUT / name)
    shutil.copy(CHECKOUT / "Pulumi.prod.yaml", project)
    return Workspace(
        folder,
        {
            "PATH": f"{TOOLCHAIN / 'bin'}:{CHECKOUT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(folder / "no-kubeconfig"),
            "PULUMI_HOME": str(TOOLCHAIN / "pulumi-home"),
            "PULUMI_BACKEND_URL": f"file://{state}",
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",
            "PULUMI_ERROR_OUTPUT_STRING": "1",
            **{name: os.environ[name] for name in _PASSED_ON & os.environ.keys()},
        },
    )
