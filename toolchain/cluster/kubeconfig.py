"""Kubeconfigs: one for each user of the API."""

import json
from pathlib import Path
from typing import Any

CONTEXT = "gpu-tenancy-local"


def write(path: Path, server: str, ca: Path, user: dict[str, Any]) -> None:
    """A kubeconfig with one context. `user` holds the credentials. It is JSON, which is YAML."""
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


def is_within(path: Path, clusters: Path) -> bool:
    """Whether the file is as `write` left it, for a cluster in that folder."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["clusters"]
    except (ValueError, KeyError, TypeError):
        return False
    return [Path(entry["cluster"]["certificate-authority"]).is_relative_to(clusters) for entry in entries] == [True]


def certificate(pki: Path, name: str) -> dict[str, str]:
    """Credentials: the client certificate `name`."""
    return {"client-certificate": str(pki / f"{name}.crt"), "client-key": str(pki / f"{name}.key")}
