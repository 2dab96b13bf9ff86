"""Writes the kubeconfigs of the cluster's users."""

import json
from pathlib import Path
from typing import Any

CONTEXT = "gpu-tenancy-local"


def write(path: Path, server: str, ca: Path, user: dict[str, Any]) -> None:
    """Writes a kubeconfig with one context. `user` has the user's credentials.

    The kubeconfig is JSON, which is also valid YAML.
    """
    name = path.name.removesuffix(".kubeconfig")
    path.touch(mode=0o600)
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": CONTEXT, "cluster": {"server": server, "certificate-authority": str(ca)}}],
                "users": [{"name": name, "user": user}],
                "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": name}}],
                "current-context": CONTEXT,
            },
            indent=1,
        )
    )
