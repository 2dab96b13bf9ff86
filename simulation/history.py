"""Prepares recorded samples of use for a replay: finds each pod's owner, and its use during its life.

A pod's life is the time from its first sample to its last sample. All times of the history are seconds since 1970.
Units of memory: MiB.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agents.gate.config import GateConfig
from tenancy.choices import Sharing
from tenancy.ledger import Ledger, Pool
from tenancy.pod_history import PodHistory, workload_of_pod

# The replay ignores changes of use by less than this number of MiB, so that it takes less time.
GRAIN_MIB = 16


@dataclass(frozen=True)
class PodLife:
    """The life of a recorded pod.

    Each step has the seconds since the beginning of the life, and the MiB that the pod uses from then on. `over` is
    True if the pod was over its budget when it ended. If `over` is True, the watchdog probably evicted the pod.
    """

    begin: float
    end: float
    steps: tuple[tuple[float, int], ...]
    over: bool = False

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A resident or an on-demand workload. `name` is the workload's key in the stack file.

    For an on-demand workload, `declared_mib` is 0.
    """

    name: str
    namespace: str
    pool: str
    declared_mib: int = 0


@dataclass
class RecordedPods:
    """The recorded pods, assigned to the owners of one stack.

    `lives` maps an owner to a sorted list of lives for each replica. `outside` has the memory of pods without an owner,
    by pool and device. The memory is a list of pairs of time and MiB. `refused` has the lives of owners that only the
    stack of the recording declares.
    """

    lives: dict[str, list[list[PodLife]]] = field(default_factory=dict)
    outside: dict[tuple[str, int], list[tuple[float, int]]] = field(default_factory=dict)
    refused: dict[str, list[PodLife]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def owners(ledger: Ledger, gates: Iterable[GateConfig]) -> list[Owner]:
    """Returns all residents and all on-demand workloads."""
    found = [
        Owner(name=seat.name, namespace=seat.tenant, pool=seat.pool, declared_mib=seat.gpumem_mib)
        for seat in ledger.seats
    ]
    return found + [Owner(name=gate.deployment, namespace=gate.namespace, pool=gate.pool) for gate in gates]


def owner_of(pod: PodHistory, known: Sequence[Owner]) -> Owner | None:
    """Returns the workload to which the pod's name belongs.

    If the pod's name belongs to no workload, returns the namespace's only workload, or None.
    """
    here = _in(pod.namespace, known)
    return workload_of_pod(pod.pod, here) or (here[0] if len(here) == 1 else None)


def _in(namespace: str, known: Iterable[Owner]) -> list[Owner]:
    return [each for each in known if each.namespace == namespace]


def recorded_pods(
    pods: Sequence[PodHistory], ledger: Ledger, gates: Iterable[GateConfig], others: Sequence[Owner] = ()
) -> RecordedPods:
    """Returns the recorded pods for one stack. `others` are the owners in the stack of the recording.

    Pods of owners that the new stack does not declare count as refused.
    """
    known = owners(ledger, gates)
    mine: dict[str, list[PodHistory]] = defaultdict(list)
    theirs: dict[str, list[PodHistory]] = defaultdict(list)
    strangers: list[PodHistory] = []
    made = RecordedPods()
    spread = _on_several(pods)
    for pod in pods:
        other = workload_of_pod(pod.pod, _in(pod.namespace, others))
        owner = workload_of_pod(pod.pod, _in(pod.namespace, known)) if other else owner_of(pod, known)
        if (pod.namespace, pod.pod) in spread or not (owner or other):
            strangers.append(pod)
        elif owner is not None:
            mine[owner.name].append(pod)
        elif other is not None:
            theirs[other.name].append(pod)
    for owner in known:
        made.lives[owner.name] = lives_by_replica(_life(pod, owner.declared_mib) for pod in mine[owner.name])
    made.refused = {name: [_life(pod, 0) for pod in found] for name, found in theirs.items()}
    if spread:
        names = ", ".join(sorted(f"{space}/{name}" for space, name in spread))
        made.notes.append(f"on several devices, so played as memory that is nobody's: {names}")
    pools = [pool for pool in ledger.pools if pool.sharing is Sharing.MEMORY]
    where = _devices(mine, {owner.name: owner.pool for owner in known}, pools, pods)
    made.outside = _outside(strangers, where)
    lost = sorted({pod.gpu for pod in strangers} - where.keys())
    if lost:
        made.notes.append(f"of no pool that a seat's pod was on, so left out: devices {', '.join(lost)}")
    if strangers:
        names = ", ".join(sorted({f"{pod.namespace}/{pod.pod}" for pod in strangers if pod.gpu in where})[:10])
        if names:
            made.notes.append(f"no seat's and no gate's, so played as memory that is nobody's: {names}")
    return made


def lives_by_replica(lives: Iterable[PodLife]) -> list[list[PodLife]]:
    """Returns the lives of each replica of a workload. Two lives belong to the same replica if one begins after the
    other has ended.
    """
    rows: list[list[PodLife]] = []
    for life in sorted(lives, key=lambda each: (each.begin, each.end)):
        row = next((row for row in rows if row[-1].end <= life.begin), None)
        if row is None:
            rows.append([life])
        else:
            row.append(life)
    return rows


def _life(pod: PodHistory, declared_mib: int) -> PodLife:
    begin, last = pod.samples[0][0], pod.samples[-1]
    steps: list[tuple[float, int]] = []
    for at, mib in pod.samples:
        if not steps or abs(mib - steps[-1][1]) >= GRAIN_MIB:
            steps.append((at - begin, mib))
    return PodLife(begin, last[0], tuple(steps), over=bool(declared_mib) and last[1] > declared_mib)


def _on_several(pods: Iterable[PodHistory]) -> set[tuple[str, str]]:
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)
    for pod in pods:
        seen[pod.namespace, pod.pod].add(pod.gpu)
    return {key for key, gpus in seen.items() if len(gpus) > 1}


def _devices(
    mine: Mapping[str, Sequence[PodHistory]],
    pool_of: Mapping[str, str],
    pools: Sequence[Pool],
    pods: Sequence[PodHistory],
) -> dict[str, tuple[str, int]]:
    """Returns the pool of each device, and the device's number in the pool.

    The seats of a device's pods determine the device's pool.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for name, histories in mine.items():
        for pod in histories:
            found[pool_of[name]].add(pod.gpu)
    if len(pools) == 1:
        found[pools[0].name] |= {pod.gpu for pod in pods}
    numbers = {pool.name: pool.gpus for pool in pools}
    return {
        gpu: (pool, number)
        for pool, gpus in found.items()
        for number, gpu in enumerate(sorted(gpus))
        if number < numbers.get(pool, 0)
    }


def _outside(
    strangers: Iterable[PodHistory], where: Mapping[str, tuple[str, int]]
) -> dict[tuple[str, int], list[tuple[float, int]]]:
    """Returns, for each device, the total memory of pods without an owner at the time of each change."""
    changes: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
    for pod in strangers:
        if pod.gpu in where:
            changes[where[pod.gpu]] += _changes(pod)
    sums = {}
    for device, found in changes.items():
        total, steps = 0, []
        for at, mib in sorted(found):
            total += mib
            steps.append((at, total))
        sums[device] = steps
    return sums


def _changes(pod: PodHistory) -> Iterator[tuple[float, int]]:
    life = _life(pod, 0)
    held = 0
    for age, mib in life.steps:
        yield life.begin + age, mib - held
        held = mib
    yield life.end, -held
