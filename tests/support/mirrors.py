"""Builds the mirror pod of a static pod, real or forged."""

from typing import Any


def owner(kind: str, name: str, uid: str = "owner-1", *, controller: bool = True) -> list[dict[str, Any]]:
    return [{"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": controller}]


def mirror(group_uid: str, node: str, node_uid: str = "owner-1") -> dict[str, Any]:
    """Source: pkg/kubelet/pod/mirror_client.go."""
    annotations = {f"kubernetes.io/config.{key}": group_uid for key in ("hash", "mirror")}
    return {"annotations": annotations, "ownerReferences": owner("Node", node, node_uid)}
