"""From a process to its container: what the kubelet and the container runtimes name the control groups.

One of `/proc/<pid>/cgroup`'s lines on cgroup v2, one for each hierarchy on v1. The kubelet names the pod's group by the
pod's UID (pkg/kubelet/cm/pod_container_manager_linux.go), containerd and cri-o name the container's below it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agents.runtime.errors import AgentError

# The cgroup driver `cgroupfs` writes pod<uid>, `systemd` …-pod<uid with _>.slice. A static pod's UID is a hash.
_POD = r"pod(?P<pod>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?"
# <id>, crio-<id>, cri-containerd-<id>.scope; under a containerd that was not told of systemd, :cri-containerd:<id>.
_CONTAINER = r"(?:/(?:[a-z-]+-)?|:[a-z-]+:)(?P<container>[0-9a-f]{64})(?:\.scope)?(?:/|$)"
_PATH = re.compile(rf"(?:^|[/-]){_POD}{_CONTAINER}")


class ProcError(AgentError):
    """A process' control group cannot be read though the process is there."""


@dataclass(frozen=True, order=True)
class Container:
    """A container as its control group tells it: the UID of its pod and its own id at the runtime."""

    pod_uid: str
    id: str


def container_in(text: str) -> Container | None:
    """The container that `/proc/<pid>/cgroup` names; None for a process outside pods.

    The outermost group counts: a container that may make groups of its own can give those any name.
    """
    for line in text.splitlines():
        found = _PATH.search(line.split(":", 2)[-1])
        if found:
            return Container(found["pod"].replace("_", "-"), found["container"])
    return None


def reader(proc: Path = Path("/proc")) -> Callable[[int], Container | None]:
    """What finds a process' container below `proc`; None also for a process that has ended. Raises ProcError."""

    def container_of(pid: int) -> Container | None:
        try:
            return container_in((proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace"))
        except (FileNotFoundError, ProcessLookupError):
            return None
        except OSError as error:
            raise ProcError(f"process {pid}: its control group cannot be read: {error}") from None

    return container_of
