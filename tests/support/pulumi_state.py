"""Builds the Pulumi state and the lock files that a killed command leaves."""

import os
import platform
import pwd
from typing import Any

from stacks.recovery import state

HERE = {
    "username": pwd.getpwuid(os.getuid()).pw_name,
    "hostname": platform.node(),
    "timestamp": "2026-11-21T01:08:18Z",
}
LABELS = {"app.kubernetes.io/part-of": "gpu-tenancy"}
VALUES = {"managerConfig": {"controllerManagerConfigYaml": "kind: Configuration"}}


def quota(namespace: str = "tts", **more: Any) -> dict[str, Any]:
    metadata = {"name": "seats", "namespace": namespace, "labels": LABELS}
    return {
        "urn": f"urn:pulumi:prod::gpu-tenancy::kubernetes:core/v1:ResourceQuota::{namespace}",
        "type": "kubernetes:core/v1:ResourceQuota",
        "custom": True,
        "inputs": {"metadata": metadata},
        **more,
    }


def release(**more: Any) -> dict[str, Any]:
    return {
        "urn": "urn:pulumi:prod::gpu-tenancy::kubernetes:helm.sh/v3:Release::kueue-release",
        "type": state.RELEASE,
        "custom": True,
        "inputs": {"name": "kueue", "namespace": "kueue-system", "chart": "./charts/kueue", "values": VALUES},
        **more,
    }


def applied(manager: str, time: str | None = "2026-11-21T01:00:00Z", **metadata: Any) -> dict[str, Any]:
    entry = {"manager": manager, "operation": "Apply"} | ({"time": time} if time else {})
    status = {"manager": "kube-controller-manager", "operation": "Update", "time": "2026-11-21T02:00:00Z"}
    return {
        "__fieldManager": "pulumi-kubernetes-0",
        "metadata": {"labels": LABELS, **metadata, "managedFields": [entry, status]},
    }


def deployment(*resources: Any, pending: Any = ()) -> dict[str, Any]:
    operations = [{"type": kind, "resource": resource} for kind, resource in pending]
    return {"version": 3, "deployment": {"resources": list(resources), "pending_operations": operations}}
