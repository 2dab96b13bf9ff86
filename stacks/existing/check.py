"""Compares the objects that a preview would create, patch and delete with the cluster."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from stacks.existing import findings, hosts, planned
from stacks.existing.leftovers import KUEUES_DEFINITION
from stacks.existing.lookup import Object, Reader, lookup
from stacks.existing.planned import Identity, Planned, Release, listed
from stacks.existing.removal import Removal, StackNamespace, contents, home
from stacks.preview.events import Resource


@dataclass(frozen=True)
class Changes:
    """The changes of a preview. The check compares the changes of a preview with the objects in the cluster."""

    planned: Sequence[Planned]
    releases: Sequence[Release]
    deleted: Sequence[Identity]
    homes: Sequence[StackNamespace]

    @classmethod
    def of(cls, resources: Collection[Resource]) -> "Changes":
        deleted = dict(planned.deleted(resources))
        homes = [home(each.before) for identity, each in deleted.items() if identity.kind == "Namespace"]
        return cls([*planned.planned(resources)], [*planned.releases(resources)], [*deleted], homes)

    def __bool__(self) -> bool:
        """Returns True if the check needs to read the cluster."""
        return bool(self.planned or self.releases or self.homes)


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
    removal = Removal({each: contents(reader, each.name) for each in changes.homes})
    again = findings.reused_objects(changes.planned, there)
    notes = [f"uses again what this stack made earlier: {listed(again)}"] if again else []
    return Verdict((*problems, *removal.problems()), (*notes, *removal.lines()))
