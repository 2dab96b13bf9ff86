"""Finds the container of a process by the name of the process's control group.

With cgroup v2, `/proc/<pid>/cgroup` has one line. With cgroup v1, `/proc/<pid>/cgroup` has a line for each hierarchy.
The name of a pod's control group contains the pod's UID (pkg/kubelet/cm/pod_container_manager_linux.go). A pod's
control group contains its containers' groups. containerd or cri-o chooses the names of the containers' groups.
"""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from agents.runtime.errors import AgentError

# With the cgroup driver `cgroupfs`, the name of a pod's control group is pod<uid>. With the cgroup driver `systemd`,
# the name ends with -pod<uid>.slice, and the UID has "_" instead of "-". The UID of a static pod is a hash.
_POD = r"pod(?P<pod>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?"
# The name of a container's control group is <id>, crio-<id> or cri-containerd-<id>.scope. If containerd is not
# configured for systemd, the name of a container's group is :cri-containerd:<id>.
_CONTAINER = r"(?:/(?:[a-z-]+-)?|:[a-z-]+:)(?P<container>[0-9a-f]{64})(?:\.scope)?(?:/|$)"
_CRIO_GROUP = "container"
_PATH = re.compile(rf"(?:^|[/-]){_POD}{_CONTAINER}")


class ProcError(AgentError):
    """The control group of a running process cannot be read."""


@dataclass(frozen=True, order=True)
class Container:
    """A container, with the pod UID and the container id from its control group."""

    pod_uid: str
    id: str


def container_in(text: str) -> Container | None:
    """Returns the container that `/proc/<pid>/cgroup` names, or None for a process outside pods.

    The outermost control group decides, because a container can create inner groups with any name.
    """
    for line in text.splitlines():
        found = _PATH.search(line.split(":", 2)[-1])
        if found:
            return Container(found["pod"].replace("_", "-"), found["container"])
    return None


@dataclass(frozen=True)
class CgroupDirectories:
    """Finds the directories of containers' control groups. `root` is the hierarchy of cgroup v2 on the host.

    The directories are cached. Only an unknown container causes a search of the hierarchy.
    """

    root: Path
    _known: dict[Container, str] = field(default_factory=dict)

    @property
    def unified(self) -> bool:
        """Returns True if the host uses cgroup v2. NVIDIA's driver needs cgroup v2 for caps."""
        return (self.root / "cgroup.controllers").is_file()

    def find(self, wanted: Collection[Container]) -> dict[Container, str]:
        """Returns the control group's directory of each container. A container without a directory is left out."""
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
                # With cri-o, crun starts the container's process in an inner group. crun also sets the limit on this
                # inner group.
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
