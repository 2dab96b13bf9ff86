"""~/.kube/config, which kubectl and everybody else reads while KUBECONFIG is unset.

The throw-away cluster's is put there only where there is none, so that no command meant for a real cluster goes astray.
It is a copy and no link: other tools write into this file, and what they write must stay with its owner.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

from toolchain.cluster.kubeconfig import is_within


def lend(kubeconfig: Path, clusters: Path, environment: Mapping[str, str]) -> None:
    """From now on kubectl finds the cluster by itself, if it would find none. `clusters` is the folder of all clusters
    of this checkout: what one of them left behind that was killed is none."""
    place = _place(environment)
    if place is None or ((place.exists() or place.is_symlink()) and not _is_lent(place, clusters)):
        return
    place.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    shutil.copy(kubeconfig, place)  # with its mode: nobody else reads it


def leads_to(clusters: Path, environment: Mapping[str, str]) -> bool:
    """Whether kubectl finds a cluster of that folder by itself."""
    place = _place(environment)
    return place is not None and _is_lent(place, clusters)


def take_back(clusters: Path, environment: Mapping[str, str]) -> None:
    """Removes what was lent; a file that somebody wrote to since is theirs."""
    place = _place({**environment, "KUBECONFIG": ""})
    if place is not None and _is_lent(place, clusters):
        place.unlink()


def _place(environment: Mapping[str, str]) -> Path | None:
    """Where kubectl looks; None where KUBECONFIG says it, or there is no home."""
    home = environment.get("HOME")
    return Path(home) / ".kube" / "config" if home and not environment.get("KUBECONFIG") else None


def _is_lent(place: Path, clusters: Path) -> bool:
    return place.exists() and is_within(place, clusters)
