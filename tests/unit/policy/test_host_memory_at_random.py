"""Judges memory pools at random with the whole policy pack. In the accepted ones, compares every protected pod with
every disposable pod, by the order of the kernel and by the order of the kubelet.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import Any

import pytest

from agents.guard.follow import AdjustmentRule
from agents.kube.pods import Pod
from policy.rule import an_object
from tenancy.host_memory.oom import BEST_EFFORT_ADJ, PodState, burstable_oom_score_adj, eviction_order
from tenancy.host_memory.pool import Disposable, HostMemoryPool, Workload
from tenancy.quantity import parse
from tenancy.units import MIB
from tenancy.workload import container_request, containers_of, is_sidecar, map_at, pod_request
from tests.support import graphs, search
from tests.support.graphs import Manifest, Program, judge
from tests.support.memory_pools import CLICKHOUSE, INFERENCE, MICROVM, NODE_4, host_memory_object
from tests.support.oom_killer import badness_pages

CASES = search.cases(300, soak=20_000)
CLASSES = {"homelab-critical": 100_000, "homelab-disposable": -1000, "other": 0}


@dataclass(frozen=True)
class Case:
    """A memory pool with its program. The node of the memory pool may have less memory than the pool declares."""

    pool: HostMemoryPool
    program: Program
    memory_mib: int
    allocatable_mib: int

    def pod(self, member: Workload | Disposable) -> Manifest:
        spec = {**self.program[member.name]["spec"]["template"]["spec"]}
        return {"metadata": {"namespace": member.tenant, "name": member.name, "uid": member.name}, "spec": spec}


def drawn(random: Random) -> Case:
    memory_mib, threshold_mib = random.randint(4000, 70_000), random.randint(1, 500)
    allocatable_mib = memory_mib - threshold_mib - random.choice((0, random.randint(0, memory_mib // 2)))
    workloads = [_workload(random, each, allocatable_mib) for each in (INFERENCE, CLICKHOUSE)]
    pool = replace(
        NODE_4,
        memory_mib=memory_mib,
        allocatable_mib=allocatable_mib,
        eviction_threshold_mib=threshold_mib,
        workloads=tuple(workloads[: random.randint(1, 2)]),
        disposable=tuple(_disposable(random, number, allocatable_mib) for number in range(random.randint(1, 3))),
    )
    own_mib = random.choice((memory_mib, random.randint(memory_mib // 2, memory_mib)))
    classes = {
        name: an_object(
            "scheduling.k8s.io/v1",
            "PriorityClass",
            name,
            value=random.choice((value, value, value, random.randint(-2000, 2000))),
            preemptionPolicy="Never",
        )
        for name, value in CLASSES.items()
    }
    deployments = {member.name: _deployment(random, pool, member) for member in pool.members}
    return Case(
        pool=pool,
        program={"memory pools": host_memory_object(pool), **classes, **deployments},
        memory_mib=own_mib,
        allocatable_mib=own_mib - threshold_mib - random.randint(0, own_mib // 4),
    )


def _workload(random: Random, base: Workload, most_mib: int) -> Workload:
    steady, request, peak, limit = sorted(random.randint(1, most_mib // 2) for _ in range(4))
    if random.random() < 0.2:
        limit = random.randint(limit, 2 * most_mib)
    return replace(base, steady_mib=steady, request_mib=request, peak_mib=peak, limit_mib=limit)


def _disposable(random: Random, number: int, most_mib: int) -> Disposable:
    least = random.randint(1, most_mib // 4)
    return replace(
        MICROVM,
        name=f"kind-{number}",
        priority=random.choice(("homelab-disposable",) * 4 + ("other", "homelab-critical")),
        pods_least=random.choice((0, 1, 1, 2)),
        pods_most=random.randint(2, 4),
        resident_least_mib=least,
        resident_most_mib=least + random.randint(0, least),
        request_mib=random.choice((0, random.randint(0, least // 2), random.randint(0, 2 * least))),
    )


def _deployment(random: Random, pool: HostMemoryPool, member: Workload | Disposable) -> Manifest:
    parts = random.choice((1, 1, 2, 3))
    requests = _split(random, member.request_mib, parts)
    extra = [0] * parts
    if isinstance(member, Workload):
        extra = _split(random, member.limit_mib - member.request_mib, parts)
    containers = [
        _container(n, request, request + more if isinstance(member, Workload) else None)
        for n, (request, more) in enumerate(zip(requests, extra, strict=True))
    ]
    initial = []
    if len(containers) > 1 and random.random() < 0.3:
        initial.append({**containers.pop(), "restartPolicy": "Always"})
    if random.random() < 0.2:
        request = random.randint(0, max(member.request_mib, 1))
        limit = random.choice((None, request, random.randint(request, 2 * pool.allocatable_mib)))
        initial.append(_container(9, request, limit))
    spec = {
        "nodeSelector": dict(pool.node_selector),
        "priorityClassName": member.priority,
        "containers": containers,
        "initContainers": initial,
    }
    return an_object("apps/v1", "Deployment", member.name, member.tenant, spec={"template": {"spec": spec}})


def _split(random: Random, mib: int, parts: int) -> list[int]:
    cuts = sorted(random.randint(0, mib) for _ in range(parts - 1))
    return [after - before for before, after in zip([0, *cuts], [*cuts, mib], strict=True)]


def _container(number: int, request_mib: int, limit_mib: int | None) -> Manifest:
    resources: Manifest = {"requests": {"memory": f"{request_mib}Mi"}} if request_mib else {}
    if limit_mib is not None:
        resources["limits"] = {"memory": f"{limit_mib}Mi"}
    return {"name": f"c{number}", "image": graphs.IMAGE, "resources": resources}


def wrong(random: Random, case: Case) -> Iterator[str]:
    """Yields each state in which the kernel or the kubelet ends a protected pod while a disposable pod runs."""
    for workload, disposable in product(case.pool.workloads, case.pool.disposable):
        yield from _killed(case, workload, disposable)
        yield from _evicted(random, case, workload, disposable)


def _killed(case: Case, workload: Workload, disposable: Disposable) -> Iterator[str]:
    """The protected process holds all that its container may hold, and the disposable process holds nothing yet."""
    pool = case.pool
    rule = AdjustmentRule(
        members=frozenset(pool.protected),
        allocatable_mib=pool.allocatable_mib,
        memory_mib=case.memory_mib,
        victim_request_mib=pool.victim_request_mib,
    ).on_node(case.allocatable_mib)
    guarded = rule.protect(Pod(case.pod(workload)))
    assert guarded is not None
    for total_mib in (case.allocatable_mib + pool.eviction_threshold_mib, case.memory_mib):
        for container in containers_of(case.pod(workload)["spec"]):
            limit = map_at(container, "resources", "limits").get("memory")
            held_mib = total_mib if limit is None else min(int(parse(limit) / MIB), total_mib)
            own = badness_pages(held_mib, guarded.adj, total_mib)
            for name, adj in _kubelets(case.pod(disposable)["spec"], case.memory_mib).items():
                if own >= badness_pages(0, adj, total_mib):
                    yield f"the kernel kills {workload.name}/{container['name']} before {disposable.name}/{name}"


def _kubelets(spec: Mapping[str, Any], memory_mib: int) -> dict[str, int]:
    """Maps each container to the oom_score_adj that the kubelet gives it (pkg/kubelet/qos/policy.go)."""
    if not pod_request(spec, "memory"):
        return {container["name"]: BEST_EFFORT_ADJ for container in containers_of(spec)}
    adj = {
        container["name"]: burstable_oom_score_adj(int(container_request(container, "memory")), memory_mib * MIB)
        for container in containers_of(spec)
    }
    least = min(adj[container["name"]] for container in containers_of(spec, "containers"))
    return adj | {c["name"]: min(adj[c["name"]], least) for c in containers_of(spec, "initContainers") if is_sidecar(c)}


def _evicted(random: Random, case: Case, workload: Workload, disposable: Disposable) -> Iterator[str]:
    moments = (workload.steady_mib, workload.peak_mib, workload.limit_mib, random.randint(0, workload.limit_mib))
    least, most = disposable.resident_least_mib, disposable.resident_most_mib
    for held_mib, resident_mib in product(moments, (least, random.randint(least, most))):
        victim = _state(case, disposable, resident_mib)
        if eviction_order([_state(case, workload, held_mib), victim])[0] != [victim]:
            yield f"the kubelet evicts {workload.name} with {held_mib} MiB before {victim}"


def _state(case: Case, member: Workload | Disposable, resident_mib: int) -> PodState:
    return PodState(
        name=member.name,
        resident_mib=resident_mib,
        request_mib=pod_request(case.pod(member)["spec"], "memory") // MIB,
        priority=case.program[member.priority]["value"],
    )


@pytest.mark.search
def test_in_no_accepted_pool_the_kernel_or_the_kubelet_ends_a_protected_pod_first() -> None:
    accepted, found = 0, []
    for number in range(CASES):
        random = search.dice(f"memory pool {number}")
        case = drawn(random)
        if judge(case.program):
            continue
        accepted += 1
        found += [(number, each) for each in wrong(random, case)]
    assert not found, f"{len({number for number, _ in found})} of {accepted} pools: {found[:3]}"
    assert accepted > CASES // 10
