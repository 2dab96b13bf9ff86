"""Simulates Kueue, which admits queued Jobs within a ClusterQueue's quota, and stops deactivated or preempted Jobs.

Only the parts that matter to the agents are simulated: quota by priority and age, and a Workload for each Job. The
watchdog sets the Workload's field `spec.active` to false (pkg/controller/core/workload_controller.go). Units: MiB,
seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from simulation.api import Object, Server
from simulation.tenants import QUEUED, Workload, Workloads
from simulation.world import World
from tenancy.names import KUEUE_API

WORKLOADS = f"/apis/{KUEUE_API}/namespaces/{{}}/workloads/{{}}"


@dataclass
class Job:
    """A Job. The Job ends after it has run for `seconds` without interruption."""

    workload: Workload
    seconds: float
    rank: int
    admitted: bool = False
    ended: bool = False
    turn: int = 0


@dataclass
class Kueue:
    """A ClusterQueue with the quota `quota_mib`, which preempts Jobs with a lower priority. Admitted pods get the
    labels of the ResourceFlavor.
    """

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
        return sum(job.workload.declared_mib for job in self.jobs.values() if job.admitted and not job.ended)

    def submit(self, name: str, namespace: str, *, mib: int, takes_mib: int, seconds: float, rank: int) -> None:
        workload = Workload(name, namespace, QUEUED, takes_mib, mib, replicas=0, priority=rank, selector=self.flavor)
        self.jobs[name] = Job(workload, seconds, rank)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"job-{name}", "controller": True}
        metadata = {"name": f"job-{name}", "namespace": namespace, "ownerReferences": [owner]}
        found = {"kind": "Workload", "metadata": metadata, "spec": {"active": True}}
        self.server.put(WORKLOADS.format(namespace, f"job-{name}"), found)
        self.tenants.add(workload)
        self._admit()

    def _admit(self) -> None:
        """Admits Jobs by priority, and the oldest Job of equal priority first.

        A Job that does not fit may preempt Jobs with a lower priority.
        """
        order = sorted(self.jobs.values(), key=lambda job: -job.rank)
        for job in order:
            if job.admitted or job.ended or not self._active(job):
                continue
            lower = [each for each in reversed(order) if each.admitted and not each.ended and each.rank < job.rank]
            room = self.quota_mib - self.used_mib
            if room + sum(each.workload.declared_mib for each in lower) < job.workload.declared_mib:
                continue
            while room < job.workload.declared_mib:
                victim = lower.pop(0)
                room += victim.workload.declared_mib
                self.world.see("kueue: preempted")
                self._take_back(victim)
            self.world.see("kueue: admitted")
            job.admitted, job.workload.replicas, job.turn = True, 1, job.turn + 1
            self.tenants.scaled(job.workload)
            self.world.after(job.seconds, lambda job=job, turn=job.turn: self._finish(job, turn))  # type: ignore[misc]

    def _finish(self, job: Job, turn: int) -> None:
        if job.admitted and job.turn == turn:
            job.ended = True
            self._take_back(job)
            self._admit()

    def _take_back(self, job: Job) -> None:
        job.admitted, job.workload.replicas = False, 0
        self.tenants.scaled(job.workload)

    def _active(self, job: Job) -> bool:
        path = WORKLOADS.format(job.workload.namespace, f"job-{job.workload.name}")
        return bool(self.server.objects[path]["spec"].get("active", True))

    def _hear(self, kind: str, found: Object) -> None:
        if found.get("kind") != "Workload" or kind == "ADDED" or found["spec"].get("active", True):
            return
        job = self.jobs[found["metadata"]["name"].removeprefix("job-")]
        if job.admitted:
            self.world.say("kueue", f"takes back {job.workload.name}, which was deactivated")
            self.world.see("action: deactivated")
            self._take_back(job)
            self._admit()
