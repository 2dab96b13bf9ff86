"""~/.kube/config, which kubectl and everybody else reads while KUBECONFIG is unset.

The throw-away cluster's is put there only where there is none, so that no command meant for a real cluster goes astray.
It is a copy and no link: other tools write into this file, and what they write must stay with its owner.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

from toolchain.cluster.kubeconfig import is_within


def lend(kubeconfig: Path, clusters: Path, environment: Mapping[str, str]) -> bool:
    """Whether kubectl now finds the cluster by itself. `clusters` is the folder of all clusters of this checkout."""
    place = _place(environment)
    if place is None or environment.get("KUBECONFIG") or not _is_free(place, clusters):
        return False
    place.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    shutil.copy(kubeconfig, place)  # with its mode: nobody else reads it
    return True


def take_back(clusters: Path, environment: Mapping[str, str]) -> None:
    """Removes what was lent; a file that somebody wrote to since is theirs."""
    place = _place(environment)
    if place is not None and place.exists() and is_within(place, clusters):
        place.unlink()


def _place(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("HOME")
    return Path(home) / ".kube" / "config" if home else None


def _is_free(place: Path, clusters: Path) -> bool:
    """Nothing is there, not even a dangling link, or what a cluster left behind that was killed."""
    return not (place.exists() or place.is_symlink()) or (place.exists() and is_within(place, clusters))
