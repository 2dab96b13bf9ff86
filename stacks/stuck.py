"""Finds the reason why no agent can run, while Pulumi waits for reconcile.

A rollout waits for reconcile's Job. A removal waits until reconcile has removed the gpumem from the nodes and the
finalizer from the ledger. If no agent can run, the removal removes both itself (docs/adr/0001).
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agents.runtime.errors import AgentError
from stacks.engine import EngineError
from stacks.existing.lookup import Object, Reader, Writer
from tenancy.names import LABEL_NAME, LEDGER, RECONCILE, Names
from tenancy.workload import map_at, maps_at

# The seconds for which a reason must hold. A kubelet tries to pull an image again after 10 s.
PATIENCE_SECONDS = 12
_OURS = f"{LABEL_NAME}={RECONCILE}"
# A Job with one of these conditions starts no more pods.
_ENDS = frozenset({"Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"})
# A container waits for these reasons while its start is in progress.
_STARTS = frozenset({"ContainerCreating", "PodInitializing"})
# With these Events, the cluster autoscaler and Karpenter report that they add a node for the pod.
_NODE_COMES = frozenset({"TriggeredScaleUp", "Nominated"})


@dataclass
class Wait:
    """Judges the pods of reconcile again and again.

    A rollout gives the uids of the Jobs that are older than it as `before`. `why` is the reason why agents cannot run,
    and is empty while they can run.
    """

    reader: Reader
    namespace: str
    before: Collection[str] | None = None
    clock: Callable[[], float] = time.monotonic
    why: str = ""
    _since: float | None = None

    def is_vain(self) -> bool:
        """Makes one step. Returns True if there was a reason in each step of the last PATIENCE_SECONDS."""
        try:
            why = why_none_runs(self.reader, self.namespace, self.before)
        except AgentError:  # Pulumi itself reports that the API server does not respond
            why = None
        now = self.clock()
        self._since = None if why is None else now if self._since is None else self._since
        self.why = why if why and self._since is not None and now - self._since >= PATIENCE_SECONDS else ""
        return bool(self.why)


@dataclass
class Retirement:
    """Removes the gpumem from the nodes and the finalizer from the ledger, if no agent can do it.

    `failure` is the reason why the operator's account could not remove them.
    """

    cluster: Writer
    wait: Wait
    failure: str = ""

    def is_vain(self) -> bool:
        """Makes one step. Returns True after a failure, because the removal would wait in vain."""
        if not self.wait.is_vain():
            return False
        try:
            retire(self.cluster, self.wait.namespace, f"no agent can run: {self.wait.why}")
        except EngineError as error:
            self.failure = f"{self.wait.why}\n  Without an agent, its gpumem stays on the nodes: {error}"
        except AgentError:  # the API server does not respond; the next step tries again
            pass
        return bool(self.failure)


def retire(cluster: Writer, namespace: str, why: str) -> None:
    """Removes the gpumem from the nodes, and then the finalizer from a ledger that is being deleted.

    Raises EngineError, and the errors of the reader.
    """
    path = f"/api/v1/namespaces/{namespace}/configmaps/{LEDGER}"
    stored = cluster.find(path) or {}
    metadata = map_at(stored, "metadata")
    finalizers = metadata.get("finalizers") or ()
    ours = [*filter(None, map(Names.of_capacity_finalizer, finalizers))]
    if not ours or "deletionTimestamp" not in metadata:
        return
    print(why, flush=True)
    for each in ours:
        keys = dict.fromkeys((each.gpumem, each.gpu_count))
        nodes = [
            str(node["metadata"]["name"])
            for node in cluster.items("/api/v1/nodes")
            if any(keys.keys() & node["status"].get(held, {}).keys() for held in ("capacity", "allocatable"))
        ]
        print(f"removes {each.gpumem} without an agent from {len(nodes)} of the nodes", flush=True)
        if nodes:
            empty = {"status": {"capacity": keys, "allocatable": keys}}
            cluster.patch("node", *nodes, "--subresource=status", patch=empty)
    rest = [each for each in finalizers if Names.of_capacity_finalizer(each) is None]
    try:
        cluster.patch("configmap", LEDGER, f"--namespace={namespace}", patch={"metadata": {"finalizers": rest}})
    except EngineError:
        if cluster.find(path) is not None:  # Otherwise an agent has run after all, and has let the ledger go.
            raise


def unfinished_jobs(reader: Reader, namespace: str) -> dict[str, Object]:
    """Returns reconcile's Jobs that have not ended, by their uids. The function raises the errors of the reader."""
    jobs = reader.items(f"/apis/batch/v1/namespaces/{namespace}/jobs", labelSelector=_OURS)
    return {
        job["metadata"]["uid"]: job
        for job in jobs
        if not _ENDS & {each["type"] for each in maps_at(job, "status", "conditions")}
    }


def why_none_runs(reader: Reader, namespace: str, before: Collection[str] | None = None) -> str | None:
    """Returns the reason why none of reconcile's Jobs has a pod that runs.

    Returns None if a pod has started, or if no object shows a reason. The function raises the errors of the reader.

    If `before` is given, the function ignores the Jobs with these uids, and returns only reasons of the Job for which
    the rollout waits. A Job of the CronJob may have the settings that the rollout repairs.
    """
    jobs = {uid: job for uid, job in unfinished_jobs(reader, namespace).items() if uid not in (before or ())}
    judged = {uid: job for uid, job in jobs.items() if before is None or not any(_owners(job))}
    if not judged:
        return None
    found = reader.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=_OURS)
    pods = [(owner, pod) for pod in found for owner in _owners(pod) if owner in jobs]
    if any(map_at(pod, "status").get("phase", "Pending") != "Pending" for _, pod in pods):
        return None
    made = {uid: ("pod", pod) for uid, pod in pods if uid in judged}
    for kind, each in ({uid: ("Job", job) for uid, job in judged.items()} | made).values():
        if why := next(_reasons(reader, each), None):
            return f"{kind} {namespace}/{each['metadata']['name']}: {why}"
    return None


def _owners(pod: Object) -> Iterator[str]:
    return (owner["uid"] for owner in maps_at(pod, "metadata", "ownerReferences"))


def _reasons(reader: Reader, stuck: Object) -> Iterator[str]:
    """Yields the reasons that keep the pod, or the pod of the Job, from its start: conditions, and the last Event."""
    for each in maps_at(stuck, "status", "containerStatuses"):
        waiting = map_at(each, "state", "waiting")
        if waiting and waiting["reason"] not in _STARTS:
            yield _text(waiting)
    metadata = stuck["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/events"
    events = sorted(reader.items(path, fieldSelector=f"involvedObject.uid={metadata['uid']}"), key=_last_seen)
    if any(each.get("reason") in _NODE_COMES for each in events):
        return
    for each in maps_at(stuck, "status", "conditions"):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            yield _text(each)
    if events and events[-1].get("type") == "Warning":
        yield _text(events[-1])


def _last_seen(event: Object) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return str(next(filter(None, times), ""))


def _text(found: Mapping[str, Any]) -> str:
    return f"{found.get('reason')}: {found.get('message', '')}"
