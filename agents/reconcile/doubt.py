"""Explains why reconcile cannot verify the capacity of a node, and how to solve the problem. Units: whole MiB of GPU
memory.
"""

from agents.kube.nodes import Node
from agents.reconcile.labels import NodeEvidence, is_labelled, number_in_label
from tenancy.choices import Source
from tenancy.ledger import Pool
from tenancy.names import GPU, LABEL_GPU_COUNT, LABEL_GPU_MEMORY, LABEL_GPU_REPLICAS, NVIDIA_DEVICE_DRIVER, Names
from tenancy.quantity import QuantityError, whole

_WHO = "is NVIDIA's DRA driver, or the exporter, running here?"


def doubt_of(pool: Pool, node: Node, shows: NodeEvidence, names: Names) -> str | None:
    """Returns the reason why the node's capacity cannot be verified, or None. The setting `source` of a pool decides
    whether labels, ResourceSlices or both must show the capacity.
    """
    if pool.source is Source.LABELS:
        return _by_labels(pool, node, shows)
    if pool.source is Source.SLICES:
        return _by_slices(pool, shows, names)
    return _by_either(pool, node, shows, names)


def _by_labels(pool: Pool, node: Node, shows: NodeEvidence) -> str | None:
    unknown, short = [], []
    for label, declared in ((LABEL_GPU_MEMORY, pool.memory_mib), (LABEL_GPU_COUNT, pool.device_count)):
        found = number_in_label(shows.labels, label)
        if found is None:
            unknown.append(label)
        elif found < declared:
            short.append(f"{label} shows {found}, {declared} declared")
    if unknown:
        return (
            f"the label {' and '.join(unknown)} is missing or not a number: pool {pool.name} cannot be verified; "
            "is GPU feature discovery running here?"
        )
    if short:
        return f"{'; '.join(short)}: lower pools.{pool.name} or check the node's devices{_unlike(node, shows)}"
    return f"pool {pool.name} cannot be verified{unlike}" if (unlike := _unlike(node, shows)) else None


def _unlike(node: Node, shows: NodeEvidence) -> str:
    """Returns the problem if the node has more GPUs than its labels explain, or "".

    GPU feature discovery writes labels for only one kind of GPU. One label has the number of GPUs of the labelled kind
    (newGPULabelers in internal/lm of NVIDIA's device plugin). If the node's capacity has more GPUs than this label, the
    node also has GPUs of another kind, or a plugin that feature discovery does not know shares each GPU.
    """
    kind, replicas = (number_in_label(shows.labels, label) for label in (LABEL_GPU_COUNT, LABEL_GPU_REPLICAS))
    try:
        offered = whole(node.capacity.get(GPU, 0))
    except QuantityError:
        return ""
    if kind is None or not replicas or offered <= kind * replicas:
        return ""
    return (
        f": the node offers {offered} {GPU}, its labels show {kind} x {replicas}: its plugin shares each GPU and "
        f"{LABEL_GPU_REPLICAS} does not say so, or it has GPUs of several kinds, of which labels show one; correct the "
        "label, take the node out of the pool, or write source: slices, which counts each device"
    )


def _by_slices(pool: Pool, shows: NodeEvidence, names: Names) -> str | None:
    if shows.devices is None:
        return f"{_unpublished(shows, names)}: pool {pool.name} cannot be verified; {_WHO}"
    if not shows.devices:
        return f"its ResourceSlices show no whole GPU: lower pools.{pool.name} or check the node's devices"
    if not pool.shown_mib(shows.devices):
        return (
            f"its ResourceSlices show {_sizes(shows.devices)}, which leave nothing beyond the reserve of "
            f"{pool.reserve_mib} MiB each: lower pools.{pool.name}.reserve_mib or check the node's devices"
        )
    return None


def _by_either(pool: Pool, node: Node, shows: NodeEvidence, names: Names) -> str | None:
    """Returns the reason if labels or ResourceSlices show fewer devices or less memory than the pool declares, or None.

    It is no error if only the labels or only the ResourceSlices are missing.
    """
    labelled = is_labelled(shows)
    if labelled and (doubt := _by_labels(pool, node, shows)):
        return doubt
    if shows.devices is None and labelled:
        return None
    if shows.devices is None:
        return (
            f"{_unpublished(shows, names)}, and the labels {LABEL_GPU_MEMORY} and {LABEL_GPU_COUNT} do not either: "
            f"pool {pool.name} cannot be verified; is GPU feature discovery, NVIDIA's DRA driver, or the exporter, "
            "running here?"
        )
    if len([mib for mib in shows.devices if mib >= pool.memory_mib]) < pool.device_count:
        return (
            f"its ResourceSlices show {_sizes(shows.devices)}, {pool.device_count} of {pool.memory_mib} declared: "
            f"lower pools.{pool.name}, write source: slices, which counts each device, or check the node's devices"
        )
    return None


def _unpublished(shows: NodeEvidence, names: Names) -> str:
    return shows.problem or f"no ResourceSlice of {NVIDIA_DEVICE_DRIVER} or {names.device_driver} shows its devices"


def _sizes(devices: tuple[int, ...]) -> str:
    return f"devices of {', '.join(map(str, devices))} MiB" if devices else "no whole GPU"
