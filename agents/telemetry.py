"""What the exporters measure, node by node: believed when it is whole, fresh and possible, else the reason why not."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agents import exposition
from agents.api import Api
from agents.device import Device
from agents.errors import AgentError
from agents.exposition import Sample
from agents.fetch import fetch
from agents.nodes import Node
from tenancy.ledger import Pool, Sharing
from tenancy.names import (
    EXPORTER,
    LABEL_NAME,
    METRIC_DEVICE_FREE,
    METRIC_DEVICE_TOTAL,
    METRIC_DEVICE_USED,
    METRIC_SAMPLE_AGE,
)
from tenancy.selector import matches

# Older samples tell nothing of the memory that is free now.
FRESH_SECONDS = 30.0
MIB = 2**20


class TelemetryError(AgentError):
    """A node's telemetry is missing, stale, partial or impossible."""


@dataclass(frozen=True, kw_only=True)
class NodeTelemetry:
    """The devices of a pool's node, or the problem for which nothing is known of them."""

    pool: Pool
    node: str
    devices: tuple[Device, ...] = ()
    problem: str | None = None


def read(
    api: Api,
    pools: Iterable[Pool],
    nodes: Sequence[Node],
    *,
    namespace: str,
    port: int,
    get: Callable[[str], bytes] = fetch,
) -> tuple[NodeTelemetry, ...]:
    """The telemetry of every node of every memory pool, by the exporters in `namespace`. Raises ApiError."""
    addresses = _exporters(api, namespace)
    return tuple(
        _node(pool, node.name, addresses.get(node.name, []), port, get)
        for pool in pools
        if pool.sharing is Sharing.MEMORY
        for node in nodes
        if matches(pool.node_selector, node.labels)
    )


def devices(text: str) -> tuple[Device, ...]:
    """The devices in an exporter's answer, by index. Raises TelemetryError and exposition.ExpositionError."""
    samples = exposition.parse(text)
    ages = [sample.value for sample in samples if sample.name == METRIC_SAMPLE_AGE]
    if len(ages) != 1 or not 0 <= ages[0] <= FRESH_SECONDS:
        raise TelemetryError(
            f"{METRIC_SAMPLE_AGE} is {ages or 'missing'}; needed is one of at most {FRESH_SECONDS:g} s"
        )
    totals, used, free = (
        _by_device(samples, name) for name in (METRIC_DEVICE_TOTAL, METRIC_DEVICE_USED, METRIC_DEVICE_FREE)
    )
    if not totals or not totals.keys() == used.keys() == free.keys():
        raise TelemetryError("the devices' series are partial")
    found = [
        Device(
            gpu=gpu, uuid=uuid, total_bytes=totals[gpu, uuid], used_bytes=used[gpu, uuid], free_bytes=free[gpu, uuid]
        )
        for gpu, uuid in sorted(totals)
    ]
    if len({device.gpu for device in found}) != len(found):
        raise TelemetryError("two devices have one index")
    for device in found:
        if device.used_bytes + device.free_bytes > device.total_bytes:
            raise TelemetryError(f"gpu {device.gpu}: used and free are more than the device has")
    return tuple(found)


def _exporters(api: Api, namespace: str) -> Mapping[str, list[str]]:
    """Addresses of the running exporters by node."""
    addresses: dict[str, list[str]] = {}
    for pod in api.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"{LABEL_NAME}={EXPORTER}"):
        status = pod.get("status") or {}
        running = status.get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        if running and status.get("podIP"):
            addresses.setdefault(pod["spec"]["nodeName"], []).append(status["podIP"])
    return addresses


def _node(pool: Pool, node: str, addresses: Sequence[str], port: int, get: Callable[[str], bytes]) -> NodeTelemetry:
    try:
        if len(addresses) != 1:
            raise TelemetryError(f"{len(addresses)} exporters run there, one is needed")
        host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
        found = devices(get(f"http://{host}:{port}/metrics").decode("utf-8", errors="replace"))
        if len(found) != pool.device_count:
            raise TelemetryError(
                f"{len(found)} devices are shown, pools.{pool.name}.device_count is {pool.device_count}"
            )
    except AgentError as error:
        return NodeTelemetry(pool=pool, node=node, problem=str(error))
    return NodeTelemetry(pool=pool, node=node, devices=found)


def _by_device(samples: Iterable[Sample], name: str) -> dict[tuple[int, str], int]:
    found: dict[tuple[int, str], int] = {}
    for sample in samples:
        if sample.name == name:
            gpu, uuid = sample.labels.get("gpu", ""), sample.labels.get("uuid", "")
            possible = gpu.isascii() and gpu.isdigit() and uuid and math.isfinite(sample.value) and sample.value >= 0
            if not possible or (int(gpu), uuid) in found:
                raise TelemetryError(f"{name}: an impossible series: {dict(sample.labels)} {sample.value!r}")
            found[int(gpu), uuid] = int(sample.value)
    return found
