"""The paths of a cluster's files and programs."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
TOOLCHAIN = CHECKOUT / ".toolchain"

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kueue")
NODE = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr")

LOG_LINES_SHOWN = 15


def program(name: str) -> str:
    return str(TOOLCHAIN / "bin" / name)


def found(name: str) -> str | None:
    """Returns the path of a program in .toolchain, or else on PATH."""
    return shutil.which(name, path=os.pathsep.join((str(TOOLCHAIN / "bin"), os.environ.get("PATH", os.defpath))))


def missing(programs: tuple[str, ...]) -> list[str]:
    """Returns the names of the listed programs that are not installed."""
    return [name for name in programs if not Path(program(name)).exists()]


@dataclass(frozen=True)
class Folder:
    """The folder of one cluster, with its certificates, kubeconfigs, logs and etcd's data."""

    path: Path

    @property
    def pki(self) -> Path:
        return self.path / "pki"

    @property
    def ca(self) -> Path:
        return self.pki / "ca.crt"

    @property
    def kubeconfig(self) -> Path:
        """The path of the administrator's kubeconfig."""
        return self.kubeconfig_of("admin")

    def kubeconfig_of(self, user: str) -> Path:
        return self.path / f"{user}.kubeconfig"

    def log(self, process: str) -> Path:
        return self.path / "logs" / f"{process}.log"

    @property
    def state(self) -> Path:
        """The path of the supervisor's state file. The state file exists as soon as the cluster is ready."""
        return self.path / "cluster.json"

    def read_state(self) -> dict[str, Any]:
        """Returns the content of the state file, or an empty dict if the file does not exist."""
        try:
            state: dict[str, Any] = json.loads(self.state.read_text())
        except FileNotFoundError:
            return {}
        return state

    def tail(self, process: str) -> str:
        """Returns the last lines of a process's log, indented."""
        try:
            lines = self.log(process).read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "  | (no log)"
        return "\n".join(f"  | {line}" for line in lines[-LOG_LINES_SHOWN:])
