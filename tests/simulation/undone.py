"""Takes the fix of a plan in cases.py out of the agents' code."""

import inspect
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from agents.exporter.main import DeviceReader
from agents.exporter.registry import Registry
from agents.extender.filter import PlacementVerbs
from agents.extender.pending import PendingPods
from agents.gate import headroom, seats
from agents.gate import main as gate_main
from agents.gate.seats import SeatNeed
from agents.kube import pods as kube_pods
from agents.kube.errors import ApiError
from agents.kube.journal import Journal
from agents.reconcile import decide as reconcile_decide
from agents.reconcile.main import Reconciler
from agents.runtime.clock import Moment
from agents.telemetry import reading
from agents.watchdog import decide as watchdog_decide
from agents.watchdog import evict, spare, workload
from agents.watchdog.history import RecycleJournal
from agents.watchdog.types import DeviceVerdict, DoubtfulTelemetry, Recycled, RecycleTarget
from agents.watchdog.view import PassView
from tenancy.devices.recycle import Offender, RecycleChoice
from tenancy.names import WATCHDOG
from tests.simulation import system

Patch = AbstractContextManager[Any]
_plain_stack, _plain_parse = system.stack, reading.parse
_plain_evict, _plain_journal_write = evict._evict, Journal.write
_plain_needs, _plain_write, _plain_doubt = headroom.seat_needs, Reconciler._write, watchdog_decide._doubt
_plain_first_restored = watchdog_decide._first_restored


def _put(target: object, name: str, new: object) -> Patch:
    return mock.patch.object(target, name, new)


def _changed(owner: Any, name: str, old: str, new: str) -> Patch:
    """Replaces a text in the source of a function or a method of `owner`."""
    function = inspect.getattr_static(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{name}: {source.count(old)} times {old}"
    module = inspect.getmodule(function)
    found: dict[str, Any] = {}
    exec(compile(source.replace(old, new), f"<{name}>", "exec"), vars(module), found)  # noqa: S102 (our own code)
    return _put(owner, name, found[name])


def _stack(**changes: Callable[[Any], object]) -> Patch:
    def changed(kind: str) -> Any:
        found = _plain_stack(kind)
        return replace(found, **{name: change(getattr(found, name)) for name, change in changes.items()})

    return _put(system, "stack", changed)


def _watchdog(**variables: str) -> Patch:
    return _stack(environ=lambda all_: {**all_, WATCHDOG: {**all_[WATCHDOG], **variables}})


def _evict(*given: Any) -> evict.EvictionResult:
    found = _plain_evict(*given)
    if found.outcome in (evict.EvictionOutcome.BLOCKED, evict.EvictionOutcome.REFUSED):
        raise ApiError("POST", None, "InternalError", found.detail)
    return found


def _unreadable(*_: object) -> None:
    raise ApiError("GET", 403, "Forbidden", "forbidden")


def _keeps_nothing(*given: Any) -> Mapping[str, SeatNeed]:
    return {uuid: replace(need, kept_mib=0) for uuid, need in _plain_needs(*given).items()}


def _journal_write(journal: Journal, content: Mapping[str, Any], *, after: Any) -> Any:
    with mock.patch.object(journal.api, "find", return_value=None):
        return _plain_journal_write(journal, content, after=after)


def _doubt(view: PassView, found: DeviceVerdict) -> DoubtfulTelemetry | None:
    ended = DoubtfulTelemetry(
        node=found.node, trouble=reading.Trouble.IMPLAUSIBLE, problem="a pod ended", gpu=found.device.gpu
    )
    return ended if found.ended else _plain_doubt(view, found)


def _blind(text: str) -> reading.Reading:
    found = _plain_parse(text)
    why = next(iter(found.unknown_uses.values()), "")
    return replace(found, uses=(), unknown_uses={each.uuid: why for each in found.devices}) if why else found


def _write(reconciler: Reconciler, names: Any, change: Any, refused: dict[str, ApiError]) -> None:
    _plain_write(reconciler, names, change, refused)
    if change.node.name in refused:
        raise refused[change.node.name]


def _at_once() -> tuple[Patch, ...]:
    return (
        _put(reconcile_decide, "fill_in_missing", lambda _ledger, shows, _verified, _now: shows),
        _put(
            reconcile_decide, "_withholding", lambda _names, node, bound, _doubt: reconcile_decide._removal(node, bound)
        ),
    )


def _first_restored(offenders: Collection[Offender], aims_mib: Iterable[int]) -> RecycleChoice:
    found = _plain_first_restored(offenders, aims_mib)
    worst = sorted(offenders, key=lambda each: -each.overshoot_mib)[:1]
    return found if found.restores else replace(found, chosen=tuple(worst))


# Maps the name of each case to the patches that undo its fix.
UNDONE: Mapping[str, Callable[[], tuple[Patch, ...]]] = {
    "a seat is refused while all others keep to theirs": lambda: (
        _put(PlacementVerbs, "_short", lambda _verbs, _query, request, fits: (fits, request)),
    ),
    "a resident that restarts finds its memory lent": lambda: (_put(headroom, "_to_free_mib", lambda _: {}),),
    "gates open into the memory of residents that boot": lambda: (_put(headroom, "seat_needs", _keeps_nothing),),
    "a gate closes though what terminates is enough": lambda: (_put(seats, "_is_going", lambda *_: False),),
    "an eviction that is refused saves every other offender": lambda: (_put(evict, "_evict", _evict),),
    "a namespace that refuses saves every other offender": lambda: (_put(evict, "_evict", _evict),),
    "an agent stops with the node of its run": lambda: (_stack(overlaps=lambda agents: dict.fromkeys(agents, False)),),
    "a pod that takes an hour to end saves the next offender": lambda: (_watchdog(GRACE_SECONDS="3600"),),
    "a disruption budget on one offender saves the other": lambda: (_put(spare, "SPARED_SECONDS", 0),),
    "a lost answer makes the runaway immune": lambda: (
        _put(Journal, "write", _journal_write),
        _put(PassView, "_was_in_vain", lambda *_: False),
    ),
    "one tenant's four recycles end everybody's protection": lambda: (
        _put(Recycled, "tenant", property(lambda _: "everybody")),
        _put(RecycleTarget, "tenant", property(lambda _: "everybody")),
    ),
    "pods of three seconds hide the offender": lambda: (_put(watchdog_decide, "_doubt", _doubt),),
    "one namespace that refuses stops every gate": lambda: (_put(gate_main, "_unreadable", _unreadable),),
    "a process that NVML cannot tell blinds the other device": lambda: (_put(reading, "parse", _blind),),
    "a node whose write is refused keeps the next without capacity": lambda: (_put(Reconciler, "_write", _write),),
    "a label that flaps takes capacity below what is bound": _at_once,
    "a label that flaps takes the devices": _at_once,
    "a node whose label flaps is protected by nobody, and that is told": lambda: (
        _put(system.System, "select_exporter", lambda *_: None),
        _put(Registry, "pool", property(lambda registry: registry.ledger and registry.ledger.shared_pools[0])),
    ),
    "memory of a queue is lent, and the job that Kueue admits waits for it": lambda: (
        _put(kube_pods, "_quota_seats", lambda *_: ()),
    ),
    "a job beyond its quota has what another that Kueue admitted waits for": lambda: (
        _put(kube_pods, "_quota_seats", lambda *_: ()),
    ),
    "a pod group beyond its quota has what another that Kueue admitted waits for": lambda: (
        _changed(spare, "_never", "pod.owner is None and not pod.stops_with_its_work", "pod.owner is None"),
    ),
    "a JobSet beyond its quota is admitted again after its recycle": lambda: (
        _changed(workload.KueueWorkload, "owns", "range(_DEEPEST)", "range(0)"),
    ),
    "an extender that restarts forgets whom it held back": lambda: (_put(PendingPods, "_begins", lambda _: False),),
    "a recycle that was written down and not done spares the offender": lambda: (
        _put(PassView, "_was_in_vain", lambda *_: False),
    ),
    "a pod that is 36 MiB over its budget is evicted for a shortfall of 116": lambda: (
        _put(watchdog_decide, "_first_restored", _first_restored),
    ),
    "a recycle that came to nothing uses up the cap of the node": lambda: (
        _put(PassView, "counted", property(lambda view: view.snapshot.recycled)),
    ),
    "the finalizer goes while a node still advertises": lambda: (
        _changed(Reconciler, "_retire", "if wrong:", "if wrong and not mine:"),
    ),
    "a refused eviction forgets the refusals of others": lambda: (
        _changed(RecycleJournal, "settle", "(*self.refused, *refusals)", "refusals"),
    ),
    "a stale reading is served as fresh": lambda: (
        _changed(DeviceReader, "metrics", "if self.age_seconds > self._limit_seconds:", "if False:"),
    ),
    "a clock ahead of the API server's is believed": lambda: (
        _changed(Moment, "problem", "abs(apart) > APART_SECONDS", "apart > APART_SECONDS"),
    ),
}


@contextmanager
def undone(name: str) -> Iterator[None]:
    with ExitStack() as stack:
        for patch in UNDONE[name]():
            stack.enter_context(patch)
        yield
