"""Describes the state of a cluster in the report of a failed test."""

from collections.abc import Iterator, Mapping
from typing import Any

from toolchain.cluster.api import ClusterApi
from toolchain.cluster.errors import ClusterError

Object = Mapping[str, Any]
EVENTS_SHOWN = 30
_HARDWARE = {"cpu", "memory", "ephemeral-storage", "pods", "hugepages-1Gi", "hugepages-2Mi"}


def told(api: ClusterApi) -> str:
    try:
        return "\n".join(_lines(api))
    except (OSError, ClusterError) as error:
        return f"the API server does not tell: {error}"


def _lines(api: ClusterApi) -> Iterator[str]:
    for node in _items(api, "/api/v1/nodes"):
        capacity = {key: value for key, value in node["status"].get("capacity", {}).items() if key not in _HARDWARE}
        yield f"node {_name(node)}: {_conditions(node, true='Ready')} {capacity}"
    for pod in _items(api, "/api/v1/pods"):
        ending = " is being deleted" if "deletionTimestamp" in pod["metadata"] else ""
        containers = "; ".join(map(_container, pod["status"].get("containerStatuses", ())))
        where = pod["spec"].get("nodeName", "no node")
        yield f"pod {_name(pod)} on {where}: {pod['status'].get('phase')}{ending} {containers} {_conditions(pod)}"
    for job in _items(api, "/apis/batch/v1/jobs"):
        yield f"job {_name(job)}: { ({key: job['status'].get(key) for key in ('active', 'succeeded', 'failed')}) }"
    events = _items(api, "/apis/events.k8s.io/v1/events")
    for event in sorted(events, key=lambda e: str(e["metadata"]["creationTimestamp"]))[-EVENTS_SHOWN:]:
        about = event.get("regarding", {})
        yield f"{event['metadata']['creationTimestamp']} {event.get('reason')} {about.get('name')}: {event.get('note')}"


def _items(api: ClusterApi, path: str) -> list[Object]:
    return list((api.get(path) or {"items": []})["items"])


def _name(found: Object) -> str:
    metadata = found["metadata"]
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


def _conditions(found: Object, true: str = "") -> str:
    conditions = found["status"].get("conditions", ())
    wrong = (c for c in conditions if c["status"] != "True" and (true in ("", c["type"])))
    return "; ".join(f"{c['type']} {c['status']}: {c.get('message', c.get('reason', ''))}" for c in wrong)


def _container(status: Object) -> str:
    (state, more), *_ = [*status["state"].items(), ("unknown", {})]
    why = more.get("reason", "") if state != "running" else ""
    return f"{status['name']} {state} {why} (restarts: {status['restartCount']})"
