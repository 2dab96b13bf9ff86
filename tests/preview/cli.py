"""The real engine and provider as an operator runs them, on a copy of the configuration and a throw-away state."""

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".toolchain"


@dataclass(frozen=True)
class Outcome:
    """What a command left behind: its exit code and everything it said."""

    code: int
    text: str


@dataclass(frozen=True)
class Workspace:
    """One test's own state backend and stack file."""

    folder: Path
    env: Mapping[str, str]

    def pulumi(self, *arguments: str, cwd: Path = ROOT, **env: str) -> Outcome:
        """Runs the pinned CLI; what it prints on both streams is the outcome's text."""
        return self.run(str(TOOLS / "bin" / "pulumi"), *arguments, "--non-interactive", cwd=cwd, **env)

    def run(self, *command: str, cwd: Path = ROOT, **env: str) -> Outcome:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        return Outcome(done.returncode, done.stdout)

    def preview(self, config: Path, *arguments: str, project: Path = ROOT, stack: str = "test", **env: str) -> Outcome:
        """`pulumi preview` of `project` under the policy pack, with `config` as its stack file."""
        init = self.pulumi("stack", "select", "--create", stack, "--config-file", str(config), cwd=project, **env)
        if init.code:
            return init
        return self.pulumi(
            "preview",
            "--stack",
            stack,
            "--config-file",
            str(config),
            "--policy-pack",
            str(ROOT / "policy"),
            "--color",
            "never",
            *arguments,
            cwd=project,
            **env,
        )

    def prod(self, change: Callable[[dict[str, Any]], object] = lambda config: None) -> Path:
        """Prod's stack file with a change to its configuration (keys without the project's name)."""
        document = yaml.safe_load((ROOT / "Pulumi.prod.yaml").read_text())
        config = {key.partition(":")[2]: value for key, value in document["config"].items()}
        change(config)
        path = self.folder / "Pulumi.test.yaml"
        document["config"] = {f"gpu-tenancy:{key}": value for key, value in config.items()}
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path


def workspace(folder: Path) -> Workspace:
    """A workspace in `folder`, with no cluster in reach: only what a fresh machine has, and the project's tools."""
    state = folder / "state"
    state.mkdir()
    return Workspace(
        folder,
        {
            "PATH": f"{TOOLS / 'bin'}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(folder / "no-kubeconfig"),
            "PULUMI_HOME": str(TOOLS / "pulumi-home"),
            "PULUMI_BACKEND_URL": f"file://{state}",
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_ERROR_OUTPUT_STRING": "1",
        },
    )
