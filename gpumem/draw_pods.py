"""Draws the pods of `kubectl gpumem who` as one list over all devices, for --sort-by. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpumem.paper import Paper
from gpumem.rows import Holder
from gpumem.who import Who

_HEADER = ("NODE", "GPU", "NAMESPACE", "POD", "SEAT", "DECLARED", "USED", "OVER", "WASTE", "STATE")


@dataclass(frozen=True)
class _Placed:
    """A pod on one of the devices. `waste_mib` is the declared memory that the pod does not use, or None if this is
    unknown."""

    node: str
    gpu: str
    pod: Holder

    @property
    def waste_mib(self) -> int | None:
        used = self.pod.used_mib
        return None if used is None else max(self.pod.declared_mib - used, 0)

    def key(self, by: str) -> tuple[object, ...]:
        pod = self.pod
        amounts = {"declared": pod.declared_mib, "used": pod.used_mib, "over": pod.over_mib, "waste": self.waste_mib}
        amount = amounts.get(by)
        return (amount is None, -(amount or 0), pod.namespace, pod.name, self.node, self.gpu)


def pods_text(report: Who, paper: Paper, *, by: str) -> str:
    """Returns a table of the pods, in the order of a value of the flag --sort-by."""
    return "\n".join(_lines(report, paper, by)).strip("\n") + "\n"


def _lines(report: Who, paper: Paper, by: str) -> Iterator[str]:
    rows = [_row(each) for each in _placed(report, by)]
    yield from paper.table(_HEADER, rows, indent="")
    if not rows:
        yield "no pod holds GPU memory"
    yield ""
    yield from paper.unknown(report.unknown)


def _placed(report: Who, by: str) -> list[_Placed]:
    found = [_Placed(row.node, str(gpu.index), pod) for row in report.nodes for gpu in row.devices for pod in gpu.pods]
    found += [_Placed(row.node, "-", pod) for row in report.nodes for pod in row.adrift]
    return sorted(found, key=lambda each: each.key(by))


def _row(each: _Placed) -> tuple[str, ...]:
    pod = each.pod
    return (
        each.node,
        each.gpu,
        pod.namespace or "-",
        pod.name or "-",
        pod.seat or "-",
        str(pod.declared_mib or "-"),
        "-" if pod.used_mib is None else str(pod.used_mib),
        "-" if pod.over_mib is None else str(pod.over_mib or "-"),
        "-" if each.waste_mib is None else str(each.waste_mib),
        pod.state,
    )
