"""Reads and changes stack files, for `--stack`.

PyYAML and the project's packages are imported only inside functions, because the plugin as one file does not have
these packages. The wheel and a checkout have them. A change of a stack file replaces only the numbers in the text, so
comments and the order of keys stay the same. The policy pack judges the changed stack file.
"""

import copy
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.runtime.errors import AgentError
from gpumem.preflight.declared import Declared, DeclaredPod, InstalledKueue, Named
from tenancy.host_memory.pool import HostMemoryPools
from tenancy.ledger import Ledger
from tenancy.names import PROJECT


class CheckoutError(AgentError):
    """Raised if a package, a stack, or an entry in a stack file is missing.

    The message of the error explains how to correct the mistake.
    """


KeyPath = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AcceptedStack:
    """A stack file that the check of the settings accepts. `values` has the values of the stack file."""

    path: Path
    ledger: Ledger
    host_memory: HostMemoryPools
    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A change of a stack file.

    `text` is the new text. `refusals` has the errors that the settings and the policy pack report.
    """

    text: str
    refusals: tuple[str, ...]


def read(name: str, root: Path) -> AcceptedStack:
    """Returns the stack file of a stack with this name, or at this path. Raises CheckoutError."""
    path = _existing(name, root)
    settings, values = _declared(path)
    pools = settings.host_memory()
    return AcceptedStack(path=path, ledger=settings.ledger(), host_memory=pools, values=values)


def declared_parts(name: str, root: Path) -> Declared:
    """Returns the parts of a stack that preflight compares with a cluster. Raises CheckoutError."""
    if is_path(name):
        raise CheckoutError(f"--stack of preflight must be the NAME of a Pulumi.NAME.yaml (got {name})")
    settings, _ = _declared(_existing(name, root))
    from policy.admitted import judge_by  # noqa: PLC0415
    from stacks.existing.declared import declared  # noqa: PLC0415
    from stacks.existing.findings import findings  # noqa: PLC0415
    from stacks.existing.objects import owner  # noqa: PLC0415

    planned = {Named(e.identity.kind, e.identity.namespace, e.identity.name): e for e in declared(settings, name)}
    namespaces = [each.manifest["metadata"] for each in planned.values() if each.identity.kind == "Namespace"]
    installed = settings.installed_kueue

    def taken_over(there: Mapping[Named, Any]) -> Sequence[str]:
        others = {named: each for named, each in there.items() if owner(each) != f"{PROJECT}/{name}"}
        found = {e.identity.unversioned: others[named] for named, e in planned.items() if named in others}
        return [*findings(planned.values(), found)]

    ledger = settings.ledger()
    return Declared(
        ledger=ledger,
        refusals=judge_by(ledger),
        stack=name,
        created=tuple(named for named, each in planned.items() if named.kind == "Namespace" or not each.is_patch),
        namespace_labels={metadata["name"]: metadata["labels"] for metadata in namespaces},
        taken_over=taken_over,
        has_queues=settings.queues is not None,
        kueue_version=settings.kueue.version if settings.kueue else None,
        installed_kueue=InstalledKueue(namespace=installed.namespace, service_account=installed.service_account)
        if installed
        else None,
        frameworks=tuple(settings.queues.queued_kinds) if settings.queues else (),
        has_checks=bool(settings.queues and settings.queues.admission_checks),
        mutating_api=str(settings.admission.mutating_api) if settings.admission else "v1",
        has_alerts=settings.alerts is not None,
        has_operator=settings.alerts is None or settings.alerts.operator,
        is_watchdog_armed=bool(settings.watchdog and settings.acting(settings.watchdog).armed),
        is_gate_armed=bool(settings.gate and settings.acting(settings.gate).armed),
        memory_pools=settings.host_memory().pools,
        pods=tuple(_pods(settings)),
        gates=tuple((spec.tenant, spec.deployment or name) for name, spec in settings.on_demand.items()),
    )


def _pods(settings: Any) -> Iterator[DeclaredPod]:
    from stacks.existing.workloads import workloads  # noqa: PLC0415

    for each in workloads(settings):
        spec = each["spec"].get("jobTemplate", each)["spec"]
        named = Named(each["kind"], each["metadata"]["namespace"], each["metadata"]["name"])
        yield DeclaredPod(workload=named, template=spec["template"])


def _existing(name: str, root: Path) -> Path:
    _needed()
    path = root / file_name(name)
    if not path.is_file():
        raise CheckoutError(f"{path} is not there: --stack is NAME of a Pulumi.NAME.yaml here, or a file")
    return path


def is_path(given: str) -> bool:
    return given.endswith((".yaml", ".yml"))


def file_name(given: str) -> str:
    """Returns the path of a stack file, from the name of the stack or from the path itself."""
    return given if is_path(given) else f"Pulumi.{given}.yaml"


def with_numbers(stack: AcceptedStack, numbers: Mapping[KeyPath, int]) -> Proposal:
    """Returns the stack file with new numbers at the given paths of keys.

    Raises CheckoutError if the file has no number at one of these paths.
    """
    text = _with_numbers(stack.path, numbers)
    return Proposal(text=text, refusals=refusals_of(_with(stack.values, numbers)))


def _with_numbers(file: Path, numbers: Mapping[KeyPath, int]) -> str:
    import yaml  # noqa: PLC0415 (the plugin has none)

    text = file.read_text(encoding="utf-8")
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
        raise CheckoutError(f"{file}: has an alias (*), by which a number may be another key's as well; write each out")
    root = yaml.compose(text)
    config = _child(root, "config") or root
    places = {path: _at(config, path) for path in numbers}
    if wrong := [".".join(path) for path, node in places.items() if not _is_plain(node, text)]:
        raise CheckoutError(f"{file}: no number of its own at {', '.join(wrong)}; write one there")
    for path, node in sorted(places.items(), key=lambda place: -place[1].start_mark.index):
        text = text[: node.start_mark.index] + str(numbers[path]) + text[node.end_mark.index :]
    return text


def patch(stack: AcceptedStack, change: Proposal) -> str:
    """Returns the change as a unified diff."""
    texts = (stack.path.read_text(encoding="utf-8"), change.text)
    before, after = (each.splitlines(keepends=True) for each in texts)
    return "".join(difflib.unified_diff(before, after, f"a/{stack.path.name}", f"b/{stack.path.name}"))


def refusals_of_text(text: str) -> tuple[str, ...]:
    """Returns the errors that the settings and the policy pack report about the text of a stack file.

    Where the packages for it are missing, nothing can be judged, and the result is empty.
    """
    try:
        _needed()
    except CheckoutError:
        return ()
    import yaml  # noqa: PLC0415

    config = yaml.safe_load(text)["config"]
    return refusals_of({key.removeprefix(f"{PROJECT}:"): value for key, value in config.items()})


def refusals_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the errors that the settings and the policy pack report about a stack file with these values."""
    from policy.graph import Graph  # noqa: PLC0415
    from policy.rules import violations  # noqa: PLC0415
    from stacks import settings  # noqa: PLC0415

    try:
        found = settings.parse(values)
    except settings.ConfigError as error:
        return tuple(str(error).splitlines())
    configured = {"ledger": found.ledger().to_data(), "memory_pools": found.host_memory().to_data()}
    return tuple(str(each) for each in violations(Graph((), configured)))


def _with(values: Any, numbers: Mapping[KeyPath, int]) -> Any:
    """Returns a copy of JSON-like data. At each path in `numbers`, the copy has the number from `numbers`."""
    copied = copy.deepcopy(values)
    for (*parents, last), value in numbers.items():
        inner = copied
        for key in parents:
            inner = inner[key]
        inner[last] = value
    return copied


def _needed() -> None:
    try:
        from policy import rules  # noqa: F401, PLC0415
        from stacks import settings  # noqa: F401, PLC0415
    except ImportError as error:
        raise CheckoutError(
            f"--stack needs the package gpu-tenancy ({error}): pip install its wheel, and put the folder of its "
            "kubectl-gpumem before this one on PATH; or leave --stack out, and the cluster's ledger is read"
        ) from None


def _declared(path: Path) -> Any:
    from stacks import settings, stackfile  # noqa: PLC0415

    try:
        return settings.load_file(path), stackfile.read(path).values
    except settings.ConfigError as error:
        raise CheckoutError(str(error)) from None


def _at(config: Any, path: KeyPath) -> Any:
    """Returns the YAML node at a path of keys, or None if the node is missing.

    The path of keys may begin with the project's name.
    """
    first, *rest = path
    node = _child(config, f"{PROJECT}:{first}", first)
    for key in rest:
        node = _child(node, key)
    return node


def _is_plain(node: Any, text: str) -> bool:
    """Returns True if the node is a plain number without a YAML anchor."""
    return node is not None and text[node.start_mark.index : node.end_mark.index].isdecimal()


def _child(node: Any, *keys: str) -> Any:
    pairs = node.value if node is not None and node.id == "mapping" else ()
    return next((value for key, value in pairs if key.value in keys), None)
