"""Reads the highest use of each GPU workload from Prometheus.

The module prefers the series of our exporter to the series of NVIDIA's DCGM exporter.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gpumem.pods import Workload
from gpumem.prometheus import Series
from gpumem.users import GpuWorkload
from tenancy.names import METRIC_POD_USED
from tenancy.units import MIB

# The metric with the used MiB of a whole device. The labels of the metric name the only pod on the device
# (NVIDIA/dcgm-exporter, etc/default-counters.csv).
DCGM_USED = "DCGM_FI_DEV_FB_USED"
_ANY = "[a-z0-9]"
# Patterns of the last part of a pod's name, which follows the workload's name.
_SUFFIXES: Mapping[str, str] = {
    "Pod": "",
    "Deployment": f"-{_ANY}{{1,10}}-{_ANY}{{5}}",
    "StatefulSet": "-[0-9]+",
    "DaemonSet": f"-{_ANY}{{5}}",
    "Job": f"(?:-[0-9]+)?-{_ANY}{{5}}",
    "CronJob": f"-[0-9]{{8,}}(?:-[0-9]+)?-{_ANY}{{5}}",
}
# If the scrape sets a label that a series already has, Prometheus renames the label of the series (honorLabels in the
# Prometheus Operator).
_POD_LABELS = ("namespace", "pod", "exported_namespace", "exported_pod")


@dataclass(frozen=True)
class Peak:
    """The highest use of one device by one pod of a workload, and the metric with this value."""

    mib: int
    metric: str
    days: int


class History(Protocol):
    """Prometheus."""

    def at(self, query: str, time: float) -> list[Series]:
        """Returns the series that are the result of a query at one time. Raises HistoryError."""
        ...


def exporter_query(days: int) -> str:
    """Returns a PromQL query for the highest use in bytes by pod and device.

    After a restart of the exporter, a container has several series, and only the highest counts.
    """
    labels = ", ".join((*_POD_LABELS, "uuid"))
    containers = f"max by ({labels}, container, exported_container) (max_over_time({METRIC_POD_USED}[{days}d]))"
    return f"sum by ({labels}) ({containers})"


def dcgm_query(days: int) -> str:
    """Returns a PromQL query for the highest use in MiB by pod and device."""
    return f"max by ({', '.join((*_POD_LABELS, 'UUID'))}) (max_over_time({DCGM_USED}[{days}d]))"


def read(
    history: History, users: Iterable[GpuWorkload], alone: Iterable[Workload], *, days: int, now: float
) -> dict[Workload, Peak]:
    """Returns the highest use of each workload.

    DCGM measures only whole devices, so the code uses DCGM's series only for the workloads in `alone`. Raises
    HistoryError.
    """
    workloads = [user.workload for user in users]
    found = _peaks(history.at(dcgm_query(days), now), alone, DCGM_USED, 1, days)
    return found | _peaks(history.at(exporter_query(days), now), workloads, METRIC_POD_USED, MIB, days)


def makes_pod(workload: Workload, namespace: str, pod: str) -> bool:
    """Returns True if the workload could have created a pod with this name."""
    if namespace != workload.namespace or not pod.startswith(workload.name):
        return False
    return re.fullmatch(_SUFFIXES.get(workload.kind, "-.*"), pod[len(workload.name) :]) is not None


def _peaks(
    series: Iterable[Series], workloads: Iterable[Workload], metric: str, unit: int, days: int
) -> dict[Workload, Peak]:
    by_namespace: dict[str, list[Workload]] = {}
    for each in workloads:
        by_namespace.setdefault(each.namespace, []).append(each)
    found: dict[Workload, Peak] = {}
    for one in series:
        namespace, pod = _pod(one.labels)
        most = max((value for _, value in one.values), default=0) / unit
        for workload in by_namespace.get(namespace, ()):
            if most > 0 and makes_pod(workload, namespace, pod):
                before = found.get(workload)
                found[workload] = Peak(max(math.ceil(most), before.mib if before else 0), metric, days)
    return found


def _pod(labels: Mapping[str, str]) -> tuple[str, str]:
    prefix = "exported_" if labels.get("exported_pod") else ""
    return labels.get(f"{prefix}namespace", ""), labels.get(f"{prefix}pod", "")
