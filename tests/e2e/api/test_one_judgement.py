"""Tests that the policy pack and an API server with prod's policies judge random pods alike.

Some differences are known, and the random pods avoid them. For example, only the API server knows the account that
creates a pod.
"""

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from policy.admitted import PodJudge
from tenancy import reach
from tenancy.ledger import Ledger
from tenancy.seat_sizes import SeatSizes
from tests.support import reaching_pods, search
from tests.support.e2e.admitted import (
    LAX,
    ON_DEMAND,
    await_policies,
    configuration,
    create,
    create_queued,
    put_into_force,
    started,
)
from tests.support.e2e.reaching import HANDLERS, SOMEWHERE, add_runtime_classes
from tests.support.e2e.server import ApiServer
from tests.support.prod import Change, Raw, drop, put

# One namespace for each kind of tenant, and three other namespaces: privileged, without a tenant, and exempt.
NAMESPACES = (
    "immich",
    "llama-swap",
    "frigate",
    "tts",
    "android-emulator",
    "team-a",
    "signoz",
    LAX,
    SOMEWHERE,
    "nvidia",
)


def changes(config: Raw) -> None:
    put("pools t4 device_count", 2)(config)
    put("residents immich-server replicas", 2)(config)
    put("residents llama-swap devices_per_pod", 2)(config)
    put("residents llama-cpp", {"tenant": "llama-swap", "pool": "node-4", "gpumem_mib": 500})(config)
    put("queues local_queues frigate-gpu", {"tenant": "frigate", "cluster_queue": "gpu-cq"})(config)
    put("admission device_classes", ["nic.example.com"])(config)
    put(f"priorities {reaching_pods.EXEMPT_CLASS}", {"value": 2_000_000})(config)
    put("admission exempt_priorities", [reaching_pods.EXEMPT_CLASS])(config)


def by_plugin(config: Raw) -> None:
    changes(config)
    drop("scheduler")(config)


# A change of the stack takes as long as judging all pods, so only `make soak` uses a second stack.
@pytest.fixture(scope="module", params=[changes, by_plugin][: search.cases(1, soak=2)], ids=lambda p: p.__name__)
def stack(request: pytest.FixtureRequest) -> Change:
    chosen: Change = request.param
    return chosen


@pytest.fixture(scope="module")
def cluster(one_server: ApiServer, stack: Change) -> Iterator[ApiServer]:
    server = one_server
    put_into_force(server, stack)
    for name in (SOMEWHERE, "nvidia"):
        if server.api.get(f"/api/v1/namespaces/{name}") is None:
            server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, "namespaces")
    add_runtime_classes(server, HANDLERS)
    yield server
    server.clear()


@pytest.fixture(scope="module")
def ledger(stack: Change) -> Ledger:
    return configuration(stack).ledger()


def policies(server: ApiServer) -> set[str]:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    return {policy["metadata"]["name"] for policy in (server.api.get(path) or {})["items"]}


@pytest.mark.search
def test_the_gate_and_the_policies_admit_the_same_pods(cluster: ApiServer, ledger: Ledger) -> None:
    known, reasons = policies(cluster), Counter[str]()
    random, counted, differ = search.dice("one judgement"), {True: 0, False: 0}, []
    for number in range(search.cases(150, soak=4000)):
        if number % 40 == 20:
            await_policies(cluster)
        namespace = random.choice(NAMESPACES)
        sizes = sorted(SeatSizes.of(ledger.seats_of(namespace)).spreads) or [500, 14000]
        pod = reaching_pods.pod(random, ledger.names, [*sizes, 14000])
        if reach.asks_for_device(pod["spec"], ledger.names):
            pod["spec"].pop("priorityClassName", None)
        if random.random() < 0.2:
            seats = [*(seat.name for seat in ledger.seats_of(namespace)), "immich-ml", "nobodys"]
            pod["metadata"]["labels"] = {ledger.names.seat_label: random.choice(seats)}
        by_job = random.random() < 0.5
        template = started(pod, namespace) if namespace in ON_DEMAND and not by_job else pod
        found = PodJudge(ledger, namespace, template, queued=by_job, handlers=HANDLERS).refusals()
        refused = [refusal for refusal in found if any(name.startswith(refusal.policy) for name in known)]
        answer = (create_queued if by_job else create)(cluster, namespace, pod)
        counted[bool(refused)] += 1
        reasons.update({refusal.policy for refusal in refused})
        if (answer.refusal is not None) != bool(refused):
            said = [f"{refusal.policy}: {refusal.message}" for refusal in refused]
            made = f"pod {number} in {namespace}{' by a Job' if by_job else ''}"
            differ.append(f"{made}: the gate says {said}, the API server {answer.refusal}: {json.dumps(pod)}")
    assert not differ, f"{len(differ)} of {counted}:\n" + "\n".join(differ[:20])
    print(counted, reasons)
    assert min(counted.values()) > sum(counted.values()) / 10, counted
