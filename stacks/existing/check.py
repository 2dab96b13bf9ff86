"""Compares the objects that a preview would create, patch and delete with the cluster."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from stacks.existing import findings, hosts, planned
from stacks.existing.leftovers import KUEUES_DEFINITION
from stacks.existing.lookup import Object, Reader, lookup
from stacks.existing.planned import Identity, Planned, Release, listed, patcher
from stacks.preview.events import Resource
from tenancy import names
from tenancy.workload import map_at


@dataclass(frozen=True)
class Changes:
    """The changes of a preview. The check compares the changes of a preview with the objects in the cluster."""

    planned: Sequence[Planned]
    releases: Sequence[Release]
    deleted: Sequence[Identity]

    @classmethod
    def of(cls, resources: Collection[Resource]) -> "Changes":
        appearing, releases = [*planned.planned(resources)], [*planned.releases(resources)]
        return cls(appearing, releases, [*planned.deleted(resources)])

    def __bool__(self) -> bool:
        """Returns True if the check needs to read the cluster."""
        return bool(self.planned or self.releases)


@dataclass(frozen=True)
class Verdict:
    """The result of the comparison with the cluster.

    `problems` are the reasons to refuse the rollout, and `notes` are information for the operator.
    """

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def check(changes: Changes, reader: Reader, own_records: Sequence[Object] = ()) -> Verdict:
    """Reads the cluster, and judges the changes of the preview. The method raises the errors of the reader.

    `own_records` are Helm's records of an installation that a killed run of this stack began.
    """
    own = {each["metadata"]["uid"] for each in own_records}
    there = lookup(reader, [each.identity for each in changes.planned])
    problems = findings.findings(changes.planned, there, changes.deleted)
    for release in changes.releases:
        records = f"/api/v1/namespaces/{release.namespace}/secrets"
        found = reader.items(records, labelSelector=f"owner=helm,name={release.name}")
        secrets = [each for each in found if each["metadata"].get("uid") not in own]
        problems += findings.of_a_release(release, secrets, reader.find(KUEUES_DEFINITION))
    # A Job of the stack runs an agent, and the rollout waits for the Job.
    waits = any(each.identity.kind == "Job" for each in changes.planned)
    if waits and (why := hosts.why_none(reader.items("/api/v1/nodes"))):
        problems.append(why)
    homes = [each for each in changes.planned if each.identity.kind == "Namespace"]
    for each in homes:
        if each.identity in there and (used := _used(each, there[each.identity], reader)):
            problems.append(f"{each.identity}: is in use by {used}; {findings.another_name(each)}")
    missing = sorted(each.identity.name for each in homes if each.identity not in there)
    again = findings.reused_objects(changes.planned, there)
    notes = [f"uses again what this stack made earlier: {listed(again)}"] if again else []
    if missing:
        notes.append(f"creates the namespaces {listed(missing)}; no command of ours deletes a namespace")
    return Verdict(tuple(problems), tuple(notes))


def _used(home: Planned, found: Object, reader: Reader) -> str:
    """Returns what people have in a namespace that the platform would take for itself."""
    if not findings.is_the_platforms(home) or patcher(found) is not None:
        return ""
    path = f"/api/v1/namespaces/{home.identity.name}"
    claims = reader.items(f"{path}/persistentvolumeclaims")
    pods = reader.items(f"{path}/pods", fieldSelector="status.phase=Running")
    return listed(
        [
            *(f"PersistentVolumeClaim {each['metadata']['name']}" for each in claims),
            *(f"pod {each['metadata']['name']}" for each in pods if not _is_ours(each)),
        ]
    )


def _is_ours(pod: Object) -> bool:
    return map_at(pod["metadata"], "labels").get(names.LABEL_PART_OF) == names.PROJECT
