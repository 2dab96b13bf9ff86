"""Simulates kube-scheduler: the sum of a node's gpumem, requests to the extender's real handlers, retries and
preemption.

The simulated scheduler has only the parts of pkg/scheduler that decide when a pod is retried and why a pod is refused.
"""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.runtime.http_message import HttpRequest, HttpResponse
from tenancy.names import SCHEDULER_NAME, Names
from tenancy.quantity import whole
from tests.simulation.model.api import Object, Server, StatusError
from tests.simulation.model.devices import Hardware
from tests.simulation.model.tenants import gpumem_of
from tests.simulation.model.world import World

FLUSH_SECONDS = 300.0
TIMEOUT_SECONDS = 5.0  # httpTimeout of the extender in kube-scheduler's configuration
_FIRST_BACKOFF, _LONGEST_BACKOFF = 1.0, 10.0


@dataclass
class WaitingPod:
    uid: str
    attempts: int = 0
    due: bool = False
    tried_at: float = 0.0


@dataclass
class Scheduler:
    """The scheduler. `verb` sends a request to the extender and returns its response, or is None without an
    extender.
    """

    world: World
    server: Server
    hardware: Hardware
    names: Names
    verb: Callable[[HttpRequest], HttpResponse] | None = None
    waiting: dict[tuple[str, str], WaitingPod] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    # Returns True if another scheduler may place the pod on the node.
    elsewhere: Callable[[Object, str], bool] = lambda pod, node: node.startswith("k8s-node")

    def __post_init__(self) -> None:
        self.server.hears.append(self._hear)

    def _hear(self, kind: str, found: Object) -> None:
        match found.get("kind"):
            case "Pod":
                key = (found["metadata"]["namespace"], found["metadata"]["name"])
                if kind == "DELETED" or found["spec"].get("nodeName"):
                    self.waiting.pop(key, None)
                    if kind == "DELETED":
                        self._wake()
                elif key not in self.waiting:
                    self.waiting[key] = WaitingPod(found["metadata"]["uid"])
                    self._soon(key, 0.1)
            case "Node" | "ResourceClaim" | "ResourceSlice":
                self._wake()

    def _wake(self) -> None:
        """Retries each waiting pod after its backoff, because more memory may be free."""
        for key, each in self.waiting.items():
            backoff = min(_FIRST_BACKOFF * 2 ** max(each.attempts - 1, 0), _LONGEST_BACKOFF)
            self._soon(key, max(each.tried_at + backoff - self.world.now, 0.1))

    def _soon(self, key: tuple[str, str], seconds: float) -> None:
        waiting = self.waiting.get(key)
        if waiting is not None and not waiting.due:
            waiting.due = True
            self.world.after(seconds, lambda: self._try(key))

    def _try(self, key: tuple[str, str]) -> None:
        waiting = self.waiting.get(key)
        pod = self.server.pods.get(key)
        if waiting is None or pod is None or pod["spec"].get("nodeName"):
            self.waiting.pop(key, None)
            return
        waiting.due, waiting.tried_at = False, self.world.now
        waiting.attempts += 1
        ours = pod["spec"].get("schedulerName") == SCHEDULER_NAME
        problem = self._place(pod) if ours else self._bind_anywhere(pod)
        if problem is None:
            self.waiting.pop(key, None)
            return
        if self.reasons.get(waiting.uid) != problem:
            self.reasons[waiting.uid] = problem
            self.world.say("scheduler", f"{pod['metadata']['name']} waits: {problem}")
        if problem.startswith("error"):
            if not self.server.down:
                self._nominate(pod, None)
            self._soon(key, min(_FIRST_BACKOFF * 2 ** (waiting.attempts - 1), _LONGEST_BACKOFF))
        else:
            self.world.after(FLUSH_SECONDS, lambda: self._soon(key, 0.0))

    def _bind_anywhere(self, pod: Object) -> str | None:
        nodes = [m.name for m in self.hardware.machines.values() if m.ready and self.elsewhere(pod, m.name)]
        if not nodes:
            return "no node is ready"
        node = nodes[self.world.dice.randrange(len(nodes))]
        return self._write(pod, node)

    def _write(self, pod: Object, node: str) -> str | None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
        body = {"metadata": {"uid": metadata["uid"]}, "target": {"name": node}}
        try:
            self.server.handle("POST", path, body)
        except StatusError as error:
            return f"error: {error}"
        return None

    def _place(self, pod: Object) -> str | None:
        """Places a pod. Returns None if the pod is bound, else the problem.

        If the problem begins with "error", the scheduler retries the pod after a backoff.
        """
        if self.server.down:
            return "error: the API is away"
        request = gpumem_of(pod, self.names.gpumem)
        ready = [m.name for m in self.hardware.machines.values() if m.ready and self.selects(pod, m.name)]
        fitting = [name for name in ready if self._free_mib(name, pod) >= request and self.has_devices(name, pod)]
        if not fitting:
            self.world.see("state: a pod waits for its node's sum")
            return self._preempt(pod, ready) or f"no node has {request} of gpumem left"
        nominated = pod["status"].get("nominatedNodeName")
        for asked in ([nominated] if nominated in fitting else [], fitting):  # tries the nominated node first
            answer = self._ask("filter", {"Pod": pod, "NodeNames": asked}) if asked else {}
            if answer is None or answer.get("Error"):
                return f"error: {answer['Error'] if answer else 'no extender'}"
            if nodes := answer.get("NodeNames") or []:
                break
        if not nodes:
            self.world.see("state: a pod is refused by the extender")
            return self._preempt(pod, fitting) or "; ".join(
                f"{node} {why}"
                for kind in ("FailedNodes", "FailedAndUnresolvableNodes")
                for node, why in (answer.get(kind) or {}).items()
            )
        metadata = pod["metadata"]
        arguments = {
            "PodNamespace": metadata["namespace"],
            "PodName": metadata["name"],
            "PodUID": metadata["uid"],
            "Node": nodes[0],
        }
        bound = self._ask("bind", arguments)
        if bound is None or bound.get("Error"):
            return f"error: {bound['Error'] if bound else 'no extender'}"
        return None

    def _preempt(self, pod: Object, nodes: Iterable[str]) -> str | None:
        """Chooses victims by the node's sums, as kube-scheduler does, and then asks the extender.

        Like kube-scheduler after 1.36 (kubernetes#135486), also asks about a node that lacks nothing in sum.

        Returns None if there are no victims. If there are no victims, the nomination of the pod ends. While an earlier
        victim of the pod terminates, the scheduler chooses no other victim.
        """
        priority = priority_of(pod)
        nominated = pod["status"].get("nominatedNodeName")
        if any("deletionTimestamp" in p["metadata"] and priority_of(p) < priority for p in self.bound_to(nominated)):
            return f"waits for victims on {nominated}"
        lower = {node: self._lower(node, priority) for node in nodes}
        lower = {node: pods for node, pods in lower.items() if pods}
        if not lower:
            self._nominate(pod, None)
            return None
        named = {node: self._by_sum(pod, node, pods) for node, pods in lower.items()}
        victims = {node: {"Pods": [{"UID": uid} for uid in uids]} for node, uids in named.items() if uids is not None}
        answer = self._ask("preempt", {"Pod": pod, "NodeNameToMetaVictims": victims}) or {}
        for node, chosen in (answer.get("NodeNameToMetaVictims") or {}).items():
            uids = {each["UID"] for each in chosen["Pods"]}
            leaving = [p for p in self.bound_to(node) if p["metadata"]["uid"] in uids]
            for check in self.server.checks:
                check("preempt", {"pod": pod, "victims": leaving})
            for victim in leaving:
                self.world.say("scheduler", f"preempts {victim['metadata']['name']}")
                self.world.see("action: preempted")
                self.server.delete_pod(victim)
            self._nominate(pod, node)
            return f"waits for victims on {node}"
        return None

    def _by_sum(self, pod: Object, node: str, lower: Sequence[Object]) -> list[str] | None:
        """Returns the UIDs of the pods that must leave so that the pod fits the node's sums. Returns None if the pod
        does not fit after all these pods have left.

        A pod with a high priority stays if possible, and before it each pod with a disruption budget.
        Source: SelectVictimsOnNode in pkg/scheduler/framework/plugins/defaultpreemption.
        """
        leaving = {each["metadata"]["uid"]: each for each in lower}
        if not self._fits_sum(pod, node, leaving.values()):
            return None
        for each in sorted(lower, key=lambda each: (not self.server.has_budget(each), -priority_of(each))):
            uid = each["metadata"]["uid"]
            del leaving[uid]
            if not self._fits_sum(pod, node, leaving.values()):
                leaving[uid] = each
        return [*leaving]

    def _fits_sum(self, pod: Object, node: str, leaving: Collection[Object]) -> bool:
        free = self._free_mib(node, pod), self._free_devices(node)
        keys = self.names.gpumem, self.names.gpu_count
        freed = (sum(gpumem_of(each, key) for each in leaving) for key in keys)
        wanted = (gpumem_of(pod, key) for key in keys)
        return all(ask <= 0 or mib + more >= ask for mib, more, ask in zip(free, freed, wanted, strict=True))

    def _nominate(self, pod: Object, node: str | None) -> None:
        metadata = pod["metadata"]
        found = self.server.pods.get((metadata["namespace"], metadata["name"]))
        if found is None or found["metadata"]["uid"] != metadata["uid"] or found["spec"].get("nodeName"):
            return
        rest = {key: value for key, value in found["status"].items() if key != "nominatedNodeName"}
        status = rest if node is None else {**rest, "nominatedNodeName": node}
        if status != found["status"]:
            self.server.put_pod({**found, "status": status})

    def _lower(self, node: str, priority: int) -> list[Object]:
        return [
            pod
            for pod in self.server.pods.values()
            if pod["spec"].get("nodeName") == node
            and priority_of(pod) < priority
            and gpumem_of(pod, self.names.gpumem)
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def _ask(self, verb: str, arguments: object) -> Any:
        if self.verb is None:
            return None
        began = self.world.now
        answer = self.verb(HttpRequest("POST", f"/{verb}", json.dumps(arguments).encode()))
        if self.world.now - began > TIMEOUT_SECONDS:  # kube-scheduler has given up on the request after its timeout
            self.world.see("state: the scheduler gave up on the extender")
            return None
        return json.loads(answer.body) if answer.status == 200 else None

    def selects(self, pod: Object, node: str) -> bool:
        """Returns True if the node exists and the pod's nodeSelector matches its labels."""
        found = self.server.nodes.get(node)
        wanted = pod["spec"].get("nodeSelector") or {}
        labels = found["metadata"]["labels"] if found else {}
        return found is not None and all(labels.get(key) == value for key, value in wanted.items())

    def _advertised(self, node: str) -> int:
        return advertised(self.server.nodes[node], self.names.gpumem)

    def _free_mib(self, node: str, pod: Object) -> int:
        nominated = [
            other
            for other in self.server.pods.values()
            if other["status"].get("nominatedNodeName") == node
            and not other["spec"].get("nodeName")
            and other["metadata"]["uid"] != pod["metadata"]["uid"]
            and priority_of(other) >= priority_of(pod)
        ]
        ahead_mib = sum(gpumem_of(other, self.names.gpumem) for other in nominated)
        return self._advertised(node) - self.bound_mib(node) - ahead_mib

    def has_devices(self, node: str, pod: Object) -> bool:
        """Returns True if the pod requests no gpu-count, or if the node has enough gpu-count left."""
        wanted = gpumem_of(pod, self.names.gpu_count)
        return not wanted or self._free_devices(node) >= wanted

    def _free_devices(self, node: str) -> int:
        key = self.names.gpu_count
        return advertised(self.server.nodes[node], key) - sum(gpumem_of(other, key) for other in self.bound_to(node))

    def bound_mib(self, node: str) -> int:
        return sum(gpumem_of(pod, self.names.gpumem) for pod in self.bound_to(node))

    def bound_to(self, node: str | None) -> list[Object]:
        """Returns the pods that are bound to a node and have not ended."""
        return [
            pod
            for pod in self.server.pods.values()
            if node
            and pod["spec"].get("nodeName") == node
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]


def priority_of(pod: Object) -> int:
    return int(pod["spec"].get("priority", 0))


def advertised(node: Object, resource: str) -> int:
    """Returns the allocatable amount of a resource, or 0."""
    return whole(node["status"]["allocatable"].get(resource, "0"))
