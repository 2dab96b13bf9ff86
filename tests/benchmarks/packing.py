"""The share of a cluster's GPU memory that is handed out when pods ask for more than there is.

`make bench-packing TRACE=folder`: the folder holds openb_node_list_gpu_node.csv (1,213 nodes, 6,212 GPUs) and
openb_pod_list_default.csv (8,152 pods) of the openb trace (Weng et al., USENIX ATC 2023), which are in data/csv of
https://github.com/hkust-adsl/kubernetes-scheduler-simulator. They have thousandths of a GPU and no memory, so a
device here has 1000 MiB. As there, pods arrive in random order: the whole trace, then random pods of it, until they ask
for 130% of the GPUs. No pod leaves, and a pod that fits nowhere is lost. It fits by CPU, host memory, the number of
devices, and memory on each.
"""

import argparse
import csv
import math
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tenancy.devices.allocate import Ask, Chooser, DeviceChoice, best_fit
from tenancy.devices.fragmentation import Mix

DEVICE_MIB = 1000
ARRIVALS = 1.3  # of all the GPUs


@dataclass(frozen=True)
class Host:
    """The free resources of a node: CPU in thousandths, host memory in MiB, each device's memory in MiB."""

    cpu_milli: int
    memory_mib: int
    devices: tuple[int, ...]
    cores: int

    def has(self, job: "Job") -> bool:
        """Returns True if CPU and host memory suffice."""
        return self.cpu_milli >= job.cpu_milli and self.memory_mib >= job.memory_mib

    def less(self, job: "Job", indices: Iterable[int]) -> "Host":
        left = list(self.devices)
        for index in indices:
            left[index] -= job.ask.mib if job.ask else 0
        return Host(self.cpu_milli - job.cpu_milli, self.memory_mib - job.memory_mib, tuple(left), self.cores)


@dataclass(frozen=True)
class Job:
    """A pod; `ask` is None for one without a GPU."""

    cpu_milli: int
    memory_mib: int
    ask: Ask | None

    @property
    def gpu_mib(self) -> int:
        return self.ask.total_mib if self.ask else 0


@dataclass(frozen=True)
class Trace:
    hosts: tuple[Host, ...]
    jobs: tuple[Job, ...]

    @property
    def gpu_mib(self) -> int:
        return sum(sum(host.devices) for host in self.hosts)


# Returns the cost of a host for a job, by the host before and after, and by the cost of the chosen devices.
Preference = Callable[[Host, Host, float], float]


def read(folder: Path) -> Trace:
    """Raises FileNotFoundError."""
    return Trace(
        tuple(
            Host(int(row["cpu_milli"]), int(row["memory_mib"]), (DEVICE_MIB,) * int(row["gpu"]), int(row["cpu_milli"]))
            for row in _rows(folder / "openb_node_list_gpu_node.csv")
        ),
        tuple(
            _job(int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"]), int(row["gpu_milli"] or 0))
            for row in _rows(folder / "openb_pod_list_default.csv")
        ),
    )


def generated(seed: int, hosts: int = 40) -> Trace:
    """A small trace of the same shape: unlike nodes, shares of a device, whole devices, and pods without any."""
    chance = random.Random(seed)  # noqa: S311
    kinds = ((64_000, 262_144, 2), (96_000, 393_216, 8), (104_000, 524_288, 2), (96_000, 393_216, 4))
    nodes = [chance.choice(kinds) for _ in range(hosts)]
    found = [Host(cpu, memory, (DEVICE_MIB,) * gpus, cpu) for cpu, memory, gpus in nodes]
    jobs = []
    for _ in range(hosts * 6):
        kind = chance.random()
        share = chance.choice((230, 470, 810)) if kind < 0.38 else DEVICE_MIB
        count = 0 if kind > 0.87 else chance.choice((1,) * 30 + (2, 4, 8)) if kind > 0.38 else 1
        jobs.append(_job(chance.choice((2_000, 4_000, 8_000, 12_000)), 16_384, count, share))
    return Trace(tuple(found), tuple(jobs))


def arrivals(trace: Trace, seed: int) -> list[Job]:
    """Source: tuneUpPods in pkg/simulator/simulator.go there; the chance is Python's."""
    chance = random.Random(seed)  # noqa: S311
    jobs = list(trace.jobs)
    asked = sum(job.gpu_mib for job in jobs)
    while True:
        job = chance.choice(trace.jobs)
        asked += job.gpu_mib
        if asked > ARRIVALS * trace.gpu_mib:
            chance.shuffle(jobs)
            return jobs
        jobs.append(job)


@dataclass(frozen=True)
class Rule:
    """A rule of placement: the first host of the least cost, or a random one of them; devices by `choose`."""

    choose: Chooser
    gpu: Preference
    plain: Preference
    by_chance: bool = False

    def judge(self, host: Host, job: Job) -> tuple[float, Host]:
        """Returns the cost of the host, infinite if the job does not fit, and the host afterwards."""
        if not host.has(job):
            return math.inf, host
        if job.ask is None:
            after = host.less(job, ())
            return self.plain(host, after, 0), after
        choice = self.choose(job.ask, dict(enumerate(host.devices)), host.cpu_milli)
        if choice is None:
            return math.inf, host
        after = host.less(job, choice.indices)
        return self.gpu(host, after, choice.cost), after


class _Table:
    """The cost of each host for one kind of job. A host is judged again only after a change."""

    def __init__(self, job: Job, rule: Rule, hosts: Sequence[Host], changes: int) -> None:
        self.job = job
        self.rule = rule
        self.seen = changes
        alike = {host: rule.judge(host, job) for host in set(hosts)}
        self.costs = [alike[host][0] for host in hosts]
        self.after = [alike[host][1] for host in hosts]

    def update(self, hosts: Sequence[Host], changed: Sequence[int]) -> None:
        for at in set(changed[self.seen :]):
            self.costs[at], self.after[at] = self.rule.judge(hosts[at], self.job)
        self.seen = len(changed)

    def pick(self, chance: random.Random) -> int | None:
        """Returns the number of the job's host, or None if it fits nowhere."""
        least = min(self.costs)
        if least == math.inf:
            return None
        if self.rule.by_chance:
            return chance.choice([at for at, cost in enumerate(self.costs) if cost == least])
        return self.costs.index(least)


def allocated(trace: Trace, jobs: Iterable[Job], rule: Rule, seed: int) -> float:
    """Returns the percentage of GPU memory that is handed out in the end."""
    chance = random.Random(seed)  # noqa: S311
    hosts = list(trace.hosts)
    changed: list[int] = []
    tables: dict[Job, _Table] = {}
    given = 0
    for job in jobs:
        if job not in tables:
            tables[job] = _Table(job, rule, hosts, len(changed))
        table = tables[job]
        table.update(hosts, changed)
        at = table.pick(chance)
        if at is None:
            continue
        hosts[at] = table.after[at]
        changed.append(at)
        given += job.gpu_mib
    return 100 * given / trace.gpu_mib


def rules(trace: Trace) -> dict[str, Rule]:
    """The rules that are compared, by name. Ours are tenancy's own."""
    mix = Mix(job.ask for job in trace.jobs if job.ask)
    cores = max(host.cpu_milli for host in trace.hosts)
    gpus = max(sum(host.devices) for host in trace.hosts)

    def leftover(_before: Host, after: Host, _cost: float) -> float:
        return after.cpu_milli / cores + sum(after.devices) / gpus

    def stranded(before: Host, after: Host, _cost: float) -> float:
        return mix.cost((before.devices, before.cpu_milli), (after.devices, after.cpu_milli))

    return {
        "random node and device": Rule(_random_device, _alike, _alike, by_chance=True),
        "first fit": Rule(_first_device, _alike, _alike),
        "the peer: random node, best fit on it": Rule(best_fit, _alike, _alike, by_chance=True),
        "best fit of CPU and GPUs, as in the paper": Rule(best_fit, leftover, leftover),
        "ours: best_fit": Rule(best_fit, _by_choice, _alike),
        "ours: fragmentation": Rule(mix.choice, _by_choice, stranded),
    }


def _alike(_before: Host, _after: Host, _cost: float) -> float:
    return 0


def _by_choice(_before: Host, _after: Host, cost: float) -> float:
    return cost


def _spread(_before: Host, after: Host, _cost: float) -> float:
    """Prefers the largest share of CPU left, as kube-scheduler does (NodeResourcesFit, LeastAllocated)."""
    return -after.cpu_milli / after.cores


def _first_device(ask: Ask, free: Mapping[int, int], _cpu_milli: int | None) -> DeviceChoice | None:
    fitting = [index for index, mib in free.items() if mib >= ask.mib]
    return DeviceChoice(tuple(fitting[: ask.count]), 0) if len(fitting) >= ask.count else None


def _random_device(ask: Ask, free: Mapping[int, int], _cpu_milli: int | None) -> DeviceChoice | None:
    fitting = [index for index, mib in free.items() if mib >= ask.mib]
    if len(fitting) < ask.count:
        return None
    return DeviceChoice(tuple(random.Random(repr(free)).sample(fitting, ask.count)), 0)  # noqa: S311


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.packing", description=__doc__)
    parser.add_argument("trace", type=Path, help="the folder with the two files")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default="", help="rules whose name has this in it")
    arguments = parser.parse_args()
    trace = read(arguments.trace)
    tainted = replace(trace, jobs=tuple(job for job in trace.jobs if job.ask))
    print("| rule | pods without a GPU by the same rule | sd | by the scheduler's own | sd | kept off | sd |")
    print("|---|---|---|---|---|---|---|")
    for name, rule in rules(trace).items():
        if arguments.only in name:
            ways = ((trace, rule), (trace, replace(rule, plain=_spread)), (tainted, rule))
            row = [value for case, way in ways for value in _measured(case, way, arguments.seeds)]
            print(f"| {name} | {' | '.join(f'{value:.2f}' for value in row)} |", flush=True)


def _measured(trace: Trace, rule: Rule, seeds: int) -> tuple[float, float]:
    """Mean and standard deviation."""
    found = [allocated(trace, arrivals(trace, seed), rule, seed) for seed in range(seeds)]
    return statistics.mean(found), statistics.stdev(found) if len(found) > 1 else math.nan


def _rows(path: Path) -> Iterable[dict[str, str]]:
    with path.open(newline="") as file:
        yield from csv.DictReader(file)


def _job(cpu_milli: int, memory_mib: int, gpus: int, share: int) -> Job:
    return Job(cpu_milli, memory_mib, Ask(share, gpus, cpu_milli) if gpus else None)


if __name__ == "__main__":
    main()
