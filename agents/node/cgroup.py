"""Finds a process' container from the name of its control group.

`/proc/<pid>/cgroup` has one line with cgroup v2, and one line for each hierarchy with v1. The name of a pod's group
contains the pod's UID (pkg/kubelet/cm/pod_container_manager_linux.go). The pod's group contains the containers' groups,
and containerd or cri-o gives these groups their names.
"""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from agents.runtime.errors import AgentError

# The name of a pod's group is pod<uid> with the cgroup driver `cgroupfs`, and …-pod<uid with _>.slice with `systemd`.
# The UID of a static pod is a hash.
_POD = r"pod(?P<pod>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?"
# The name of a container's group is <id>, crio-<id> or cri-containerd-<id>.scope. If containerd is not configured for
# systemd, the name is :cri-containerd:<id>.
_CONTAINER = r"(?:/(?:[a-z-]+-)?|:[a-z-]+:)(?P<container>[0-9a-f]{64})(?:\.scope)?(?:/|$)"
_CRIO_GROUP = "container"
_PATH = re.compile(rf"(?:^|[/-]){_POD}{_CONTAINER}")


class ProcError(AgentError):
    """The control group of a running process cannot be read."""


@dataclass(frozen=True, order=True)
class Container:
    """A container as its control group shows it: the pod's UID and the container's id."""

    pod_uid: str
    id: str


def container_in(text: str) -> Container | None:
    """Returns the container that `/proc/<pid>/cgroup` names, or None for a process outside pods.

    The outermost group counts, because a container can create inner groups with any name.
    """
    for line in text.splitlines():
        found = _PATH.search(line.split(":", 2)[-1])
        if found:
            return Container(found["pod"].replace("_", "-"), found["container"])
    return None


@dataclass(frozen=True)
class CgroupDirectories:
    """Finds the directories of containers' control groups. `root` is the host's hierarchy of cgroup v2.

    The directories are cached, and the hierarchy is searched only for an unknown container.
    """

    root: Path
    _known: dict[Container, str] = field(default_factory=dict)

    @property
    def unified(self) -> bool:
        """Returns True for cgroup v2, which NVIDIA's driver needs."""
        return (self.root / "cgroup.controllers").is_file()

    def find(self, wanted: Collection[Container]) -> dict[Container, str]:
        """Returns the directory of each container that has one."""
        if not all(self._is_there(container) for container in wanted):
            self._walk()
        for container in self._known.keys() - wanted:
            del self._known[container]
        return {container: self._known[container] for container in wanted if self._is_there(container)}

    def _is_there(self, container: Container) -> bool:
        return container in self._known and os.path.isdir(self._known[container])

    def _walk(self) -> None:
        self._known.clear()
        for folder, below, _ in os.walk(self.root):
            if found := container_in(f"0::{folder.removeprefix(str(self.root))}"):
                # With cri-o, crun starts the process in an inner group, and sets the limit there.
                self._known[found] = os.path.join(folder, _CRIO_GROUP) if _CRIO_GROUP in below else folder
                below.clear()  # inner groups are skipped, because a container may give them any name


def container_of(pid: int, proc: Path = Path("/proc")) -> Container | None:
    """Returns the container of a process, or None if the process is outside pods or has ended. Raises ProcError."""
    try:
        return container_in((proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError as error:
        raise ProcError(f"process {pid}: its control group cannot be read: {error}") from None
