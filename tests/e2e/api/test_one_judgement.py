"""One judgement: what the gate says of a pod (tenancy/admitted.py) and what the API server says with prod's policies.

Generated pods go to both, and none may be admitted by one alone. What only the cluster knows, and so may differ:

- who makes the pod: a queue tenant's GPU pods are made here as the Job controller makes them;
- what admission stamps: the PriorityClass of a pod that reaches a GPU is replaced before it is judged, so that no pod
  here has both; the gate refuses a system class on it all the same;
- what is in the cluster and not in the graph: the handlers of RuntimeClasses (given to both here), labels of
  namespaces that are nobody's, the sum of a namespace's pods (ResourceQuota), ConfigMaps, Secrets and claims that a pod
  names;
- Pod Security's controls that open no way to a device (profiles, ports, sysctls), and those of a PriorityClass that a
  memory pool's policy adds: no pod here has them.
"""

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from tenancy import reach
from tenancy.admitted import PodJudge
from tenancy.ledger import Ledger
from tests.support import reaching_pods, search
from tests.support.e2e.admitted import LAX, configuration, create, create_queued, put_into_force, reorder
from tests.support.e2e.reaching import SOMEWHERE, in_force
from tests.support.e2e.rollout import eventually
from tests.support.e2e.server import ApiServer
from tests.support.prod import Change, Raw, drop, put

HANDLERS = {"nvidia-cdi": "nvidia-cdi", "fast": "nvidia-experimental", "gvisor": "runsc"}
# Tenants with seats, with one that queues as well, on demand, unbudgeted, queueing, without anything; held to nothing;
# nobody's; exempt.
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
    """Two devices a node, a seat on both, a tenant with a seat that queues."""
    put("pools t4 device_count", 2)(config)
    put("residents immich-server replicas", 2)(config)
    put("queues local_queues frigate-gpu", {"tenant": "frigate", "cluster_queue": "gpu-cq"})(config)
    put("admission device_classes", ["nic.example.com"])(config)
    put(f"priorities {reaching_pods.EXEMPT_CLASS}", {"value": 2_000_000})(config)
    put("admission exempt_priorities", [reaching_pods.EXEMPT_CLASS])(config)


def by_plugin(config: Raw) -> None:
    """The device plugin chooses devices, not our scheduler."""
    changes(config)
    drop("scheduler")(config)


# The second one in `make soak` alone: to put another stack into force takes as long as the pods.
@pytest.fixture(scope="module", params=[changes, by_plugin][: search.cases(1, soak=2)], ids=lambda p: p.__name__)
def stack(request: pytest.FixtureRequest) -> Change:
    chosen: Change = request.param
    return chosen


@pytest.fixture(scope="module")
def cluster(one_server: ApiServer, stack: Change) -> Iterator[ApiServer]:
    server = one_server
    put_into_force(server, stack)
    for name, handler in HANDLERS.items():
        runtime_class = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}}
        server.apply({**runtime_class, "handler": handler}, "runtimeclasses")
    for name in (SOMEWHERE, "nvidia"):
        if server.api.get(f"/api/v1/namespaces/{name}") is None:
            server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, "namespaces")
    eventually(lambda: in_force(server), "the API server has taken up every policy")
    yield server
    server.clear()


@pytest.fixture(scope="module")
def ledger(stack: Change) -> Ledger:
    return configuration(stack).ledger()


def policies(server: ApiServer) -> set[str]:
    """Those that are in force: what none of them says, the gate alone refuses."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    return {policy["metadata"]["name"] for policy in (server.api.get(path) or {})["items"]}


@pytest.mark.search
def test_the_gate_and_the_policies_admit_the_same_pods(cluster: ApiServer, ledger: Ledger) -> None:
    known, reasons = policies(cluster), Counter[str]()
    random, counted, differ = search.dice("one judgement"), {True: 0, False: 0}, []
    for number in range(search.cases(150, soak=4000)):
        if number % 40 == 20:
            reorder(cluster, number)
        namespace = random.choice(NAMESPACES)
        sizes = sorted(ledger.seat_sizes(namespace)) or [500, 14000]
        pod = reaching_pods.pod(random, ledger.names, [*sizes, 14000])
        if any(reach.routes(pod["spec"], ledger.names)):
            pod["spec"].pop("priorityClassName", None)
        by_job = random.random() < 0.5
        found = PodJudge(ledger, namespace, pod, queued=by_job, handlers=HANDLERS).refusals()
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
