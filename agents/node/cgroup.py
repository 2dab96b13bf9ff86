"""Maps a process to its container, by the names of the process's control groups.

`/proc/<pid>/cgroup` has one line on cgroup v2, and one for each hierarchy on v1. The kubelet names the pod's group by
the pod's UID (pkg/kubelet/cm/pod_container_manager_linux.go). containerd and cri-o name the container's group below it.
"""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from agents.runtime.errors import AgentError

# The cgroup driver `cgroupfs` writes pod<uid>, `systemd` …-pod<uid with _>.slice. A static pod's UID is a hash.
_POD = r"pod(?P<pod>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?"
# The container's id stands in <id>, crio-<id> or cri-containerd-<id>.scope; in :cri-containerd:<id> if containerd is
# not configured for systemd.
_CONTAINER = r"(?:/(?:[a-z-]+-)?|:[a-z-]+:)(?P<container>[0-9a-f]{64})(?:\.scope)?(?:/|$)"
_CRIO_GROUP = "container"
_PATH = re.compile(rf"(?:^|[/-]){_POD}{_CONTAINER}")


class ProcError(AgentError):
    """The control group of a running process cannot be read."""


@dataclass(frozen=True, order=True)
class Container:
    """A container, named by its control group: the UID of its pod, and its own id at the runtime."""

    pod_uid: str
    id: str


def container_in(text: str) -> Container | None:
    """Returns the container that `/proc/<pid>/cgroup` names, or None for a process outside pods.

    The outermost group counts, since a container can make inner groups with any name.
    """
    for line in text.splitlines():
        found = _PATH.search(line.split(":", 2)[-1])
        if found:
            return Container(found["pod"].replace("_", "-"), found["container"])
    return None


@dataclass(frozen=True)
class Groups:
    """Finds directories of containers' control groups below `root`, the host's whole hierarchy of cgroup v2.

    Found directories are kept. The tree is walked only for a container that is not known yet.
    """

    root: Path
    _known: dict[Container, str] = field(default_factory=dict)

    @property
    def unified(self) -> bool:
        """Returns True for cgroup v2, which NVIDIA's driver needs."""
        return (self.root / "cgroup.controllers").is_file()

    def find(self, wanted: Collection[Container]) -> dict[Container, str]:
        """Returns the directories of the containers that have one."""
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
                # Under cri-o, crun starts the process in a group below this one, where the limit is set.
                self._known[found] = os.path.join(folder, _CRIO_GROUP) if _CRIO_GROUP in below else folder
                below.clear()  # the groups below are skipped, because a container may give its own groups any name


def container_of(pid: int, proc: Path = Path("/proc")) -> Container | None:
    """Returns the container of a process, or None if the process is outside pods or has ended. Raises ProcError."""
    try:
        return container_in((proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError as error:
        raise ProcError(f"process {pid}: its control group cannot be read: {error}") from None
