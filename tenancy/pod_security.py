"""The fields with which a pod gets access to its node, and so to every device past its budget.

The Pod Security level baseline forbids these fields.
https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline
"""

from collections.abc import Iterator

from tenancy.workload import Manifest, containers_of, map_at, maps_at, texts_at

# The level baseline permits a container to add these capabilities.
_CAPABILITIES = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"),
    *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)


def node_access_fields(pod_spec: Manifest) -> Iterator[str]:
    """Yields a description of each field that gives a pod access to its node. Raises ShapeError."""
    yield from (f"{shared} is on" for shared in ("hostNetwork", "hostPID", "hostIPC") if pod_spec.get(shared))
    for volume in maps_at(pod_spec, "volumes"):
        if volume.get("hostPath") is not None:
            yield f"volume {volume.get('name')} mounts the host's {map_at(volume, 'hostPath').get('path')}"
    for container in containers_of(pod_spec):
        security = map_at(container, "securityContext")
        if security.get("privileged"):
            yield f"container {container.get('name')} is privileged"
        added = texts_at(map_at(security, "capabilities"), "add")
        yield from (f"container {container.get('name')} adds {c}" for c in added if c not in _CAPABILITIES)
