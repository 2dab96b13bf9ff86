"""Finds the PriorityClasses of the cluster's GPU pods, and proposes PriorityClasses for the stack. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from agents.kube.errors import Object
from gpumem.init.sourced import SourcedNumber, assumed, dns_label
from gpumem.pods import WholePod
from gpumem.users import GpuWorkload
from tenancy.names import SYSTEM_PRIORITIES
from tenancy.workload import text_at

DEFAULT_CLASS = "gpu-workload"
_DEFAULT_VALUE = 1_000_000
_HIGHEST = 1_000_000_000  # Kubernetes reserves values above 1,000,000,000 for itself.


@dataclass(frozen=True, kw_only=True)
class ClassProposal:
    """A PriorityClass that is proposed for the stack.

    `exists` is True if the cluster already has this PriorityClass.
    """

    name: str
    value: SourcedNumber
    exists: bool
    never_preempts: bool = False
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class Classes:
    """The PriorityClasses for the stack.

    `gpu` is the default PriorityClass for GPU pods. `by_tenant` has the PriorityClass of each tenant that does not use
    the default. `others` are the names of all other PriorityClasses that the stack may use.
    """

    gpu: ClassProposal
    by_tenant: Mapping[str, ClassProposal]
    others: tuple[str, ...]


def classes(
    users: Sequence[GpuWorkload],
    every: Sequence[GpuWorkload],
    pods: Sequence[WholePod],
    declared: Mapping[str, Object],
    exempt: Collection[str],
) -> Classes:
    """Returns the PriorityClasses for the stack. `users` get a seat, and `every` also has those that reach a GPU and
    get none.

    The proposal uses a PriorityClass of the cluster only if all pods of the class reach a GPU. Admission denies a
    PriorityClass of the GPU pods to pods that reach no GPU.
    """
    tenants = {user.workload.namespace for user in users}
    theirs = {pod.uid for user in every for pod in user.pods}
    strangers = {pod.priority_class for pod in pods if pod.uid not in theirs and pod.namespace not in exempt}
    usable = {name for name in declared if name not in strangers and _is_usable(name, declared[name])}
    used = Counter(pod.priority_class for user in users for pod in user.pods if pod.priority_class in usable)
    most = max(sorted(name for name in used if name), key=lambda name: used[name], default=None)
    gpu = _existing(most, declared) if most else _default(declared)
    by_tenant = {}
    for tenant in sorted(tenants):
        own = {pod.priority_class for user in users if user.workload.namespace == tenant for pod in user.pods}
        name = own.pop() if len(own) == 1 else None
        if name and name in usable and name != gpu.name and _value(declared[name]) < gpu.value.value:
            by_tenant[tenant] = _existing(name, declared)
    taken = {gpu.name, *(each.name for each in by_tenant.values())}
    rest = (name for name in declared if name not in taken and not name.startswith(SYSTEM_PRIORITIES))
    others = tuple(f"{name} ({_value(declared[name])})" for name in sorted(rest))
    return Classes(gpu=gpu, by_tenant=by_tenant, others=others)


def _is_usable(name: str, declared: Object) -> bool:
    """Returns True if the stack can use the PriorityClass.

    The PriorityClass must not be the cluster's default, and its name must be a DNS label.
    """
    is_plain = not declared.get("globalDefault") and dns_label(name) == name
    return is_plain and not name.startswith(SYSTEM_PRIORITIES) and 0 <= _value(declared) <= _HIGHEST


def _existing(name: str, declared: Mapping[str, Object]) -> ClassProposal:
    found = declared[name]
    value = SourcedNumber(_value(found), "the cluster's PriorityClass of this name")
    return ClassProposal(
        name=name, value=value, exists=True, never_preempts=text_at(found, "preemptionPolicy") == "Never"
    )


def _default(declared: Mapping[str, Object]) -> ClassProposal:
    name = DEFAULT_CLASS if DEFAULT_CLASS not in declared else f"{DEFAULT_CLASS}-2"
    value = assumed(_DEFAULT_VALUE, "above the classes that GPU pods may preempt, below those that may preempt them")
    return ClassProposal(name=name, value=value, description="Every pod that reaches a GPU", exists=False)


def _value(declared: Object) -> int:
    value = declared.get("value", 0)
    return value if isinstance(value, int) else 0
