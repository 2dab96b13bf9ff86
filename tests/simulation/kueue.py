"""Simulates the parts of Kueue that agents notice: quota by priority and age, Workloads with podSets, and preemption.
Units: MiB, seconds.

The watchdog stops work by the field `spec.active` of its Workload (pkg/controller/core/workload_controller.go).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tenancy.names import KUEUE_API, LEADER_WORKER_SET_LABEL
from tests.simulation.model.api import Object, Server
from tests.simulation.model.tenants import QUEUED, PodSet, Workload, Workloads
from tests.simulation.model.world import World

WORKLOADS = f"/apis/{KUEUE_API}/namespaces/{{}}/workloads/{{}}"
_PARTS = {
    "Job": ("/apis/batch/v1/namespaces/{}/jobs/{}", "batch/v1"),
    "RayCluster": ("/apis/ray.io/v1/namespaces/{}/rayclusters/{}", "ray.io/v1"),
}
PARTIAL_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Kind:
    pods: Mapping[str, int]
    controls: str
    direct: bool = False
    members: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


KINDS: Mapping[str, Kind] = {
    "Job": Kind(pods={"main": 1}, controls="Job", direct=True),
    "JobSet": Kind(pods={"leader": 1, "workers": 2}, controls="Job"),
    "RayJob": Kind(pods={"head": 1, "workers": 1}, controls="RayCluster"),
    "LeaderWorkerSet": Kind(
        pods={"leader": 1, "workers": 2},
        controls="StatefulSet",
        members=True,
        labels={LEADER_WORKER_SET_LABEL: "work"},
    ),
    "Deployment": Kind(pods={"main": 1}, controls="ReplicaSet"),
    "Pod group": Kind(pods={"main": 2}, controls="", members=True),
}


@dataclass
class Job:
    name: str
    namespace: str
    kind: Kind
    parts: Sequence[Workload]
    seconds: float
    rank: int
    admitted: bool = False
    ended: bool = False
    turn: int = 0

    @property
    def mib(self) -> int:
        return sum(part.declared_mib * count for part, count in zip(self.parts, self.kind.pods.values(), strict=True))

    @property
    def holds_quota(self) -> bool:
        return self.admitted and not self.ended


@dataclass
class Kueue:
    world: World
    server: Server
    tenants: Workloads
    quota_mib: int
    flavor: Mapping[str, str]
    jobs: dict[str, Job] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.server.hears.append(self._hear)

    @property
    def used_mib(self) -> int:
        return sum(job.mib for job in self.jobs.values() if job.holds_quota)

    def submit(self, job: Job) -> None:
        self.jobs[job.name] = job
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": f"job-{job.name}"}
        metadata = {
            "name": f"job-{job.name}",
            "namespace": job.namespace,
            "ownerReferences": [{**owner, "controller": True}],
        }
        sets = [{"name": name, "count": count} for name, count in job.kind.pods.items()]
        found = {"kind": "Workload", "metadata": metadata, "spec": {"active": True, "podSets": sets}}
        self.server.put(WORKLOADS.format(job.namespace, f"job-{job.name}"), found)
        for part in job.parts:
            self._control(job, part, owner)
            self.tenants.add(part)
        self._admit()

    def _control(self, job: Job, part: Workload, owner: Object) -> None:
        controller = part.pod_set.controller if part.pod_set else None
        if controller and controller["kind"] in _PARTS and not job.kind.direct:
            path, _ = _PARTS[controller["kind"]]
            own = {"name": controller["name"], "namespace": job.namespace, "uid": controller["uid"]}
            metadata = {**own, "ownerReferences": [{**owner, "controller": True}]}
            self.server.put(path.format(job.namespace, controller["name"]), {"metadata": metadata})

    def work(self, name: str, namespace: str, kind: str, mib: int, takes_mib: int) -> Sequence[Workload]:
        found = KINDS[kind]
        parts = []
        for number, pod_set in enumerate(found.pods):
            of_set = name if found.direct or not number else f"{name}-{pod_set}"
            uid = f"job-{name}" if found.direct else f"{found.controls}-{of_set}"
            _, version = _PARTS.get(found.controls, ("", "apps/v1"))
            named = {"apiVersion": version, "kind": found.controls, "name": of_set, "uid": uid}
            controller = named if found.controls else None
            part = Workload(of_set, namespace, QUEUED, takes_mib, mib, replicas=0, selector=self.flavor)
            part.pod_set = PodSet(name=pod_set, workload=f"job-{name}", controller=controller, labels=found.labels)
            parts.append(part)
        return parts

    def _admit(self) -> None:
        order = sorted(self.jobs.values(), key=lambda job: -job.rank)
        for job in order:
            if job.admitted or job.ended or not self._active(job):
                continue
            lower = [each for each in reversed(order) if each.holds_quota and each.rank < job.rank]
            room = self.quota_mib - self.used_mib
            if room + sum(each.mib for each in lower) < job.mib:
                continue
            while room < job.mib:
                victim = lower.pop(0)
                room += victim.mib
                self.world.see("kueue: preempted")
                self._take_back(victim)
            self._start(job)

    def _start(self, job: Job) -> None:
        self.world.see("kueue: admitted")
        job.admitted, job.turn = True, job.turn + 1
        for number, (part, count) in enumerate(zip(job.parts, job.kind.pods.values(), strict=True)):

            def begin(part: Workload = part, count: int = count, turn: int = job.turn) -> None:
                if job.holds_quota and job.turn == turn:
                    part.replicas = count
                    self.tenants.scaled(part)

            if number:
                self.world.see("kueue: only some pods of a Workload exist")
                self.world.after(PARTIAL_SECONDS * self.world.dice.random(), begin)
            else:
                begin()
        self.world.after(job.seconds, lambda job=job, turn=job.turn: self._finish(job, turn))  # type: ignore[misc]

    def _finish(self, job: Job, turn: int) -> None:
        if job.admitted and job.turn == turn:
            job.ended = True
            self._take_back(job)
            self._admit()

    def _take_back(self, job: Job) -> None:
        job.admitted = False
        for part in job.parts:
            part.replicas = 0
            self.tenants.scaled(part)

    def _join(self, pod: Object) -> None:
        """Source: EnsureWorkloadOwnedByAllMembers in pkg/controller/jobs/pod."""
        metadata = pod["metadata"]
        part = self.tenants.of(pod)
        job = self.jobs.get(part.pod_set.workload.removeprefix("job-")) if part and part.pod_set else None
        if job is None or not job.kind.members:
            return
        path = WORKLOADS.format(job.namespace, f"job-{job.name}")
        found = self.server.objects[path]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        owners = [*found["metadata"]["ownerReferences"], owner]
        self.server.put(path, {**found, "metadata": {**found["metadata"], "ownerReferences": owners}})

    def is_active(self, part: Workload) -> bool:
        return any(part in job.parts and self._active(job) for job in self.jobs.values())

    def _active(self, job: Job) -> bool:
        path = WORKLOADS.format(job.namespace, f"job-{job.name}")
        return bool(self.server.objects[path]["spec"].get("active", True))

    def _hear(self, kind: str, found: Object) -> None:
        if found.get("kind") == "Pod" and kind == "ADDED":
            self._join(found)
            return
        if found.get("kind") != "Workload" or kind == "ADDED" or found["spec"].get("active", True):
            return
        job = self.jobs[found["metadata"]["name"].removeprefix("job-")]
        if job.admitted:
            self.world.say("kueue", f"takes back {job.name}, which was deactivated")
            self.world.see("action: deactivated")
            self._take_back(job)
            self._admit()
