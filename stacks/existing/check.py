"""Compares what a rollout would create and patch with the cluster."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from agents.kube.errors import Object
from stacks.cluster import Cluster
from stacks.existing import findings
from stacks.existing.helm import KUEUES_DEFINITION
from stacks.existing.leftovers import Leftovers
from stacks.existing.objects import Declared, Identity, declared, listed, objects, patcher
from stacks.preview.events import Op, Resource
from tenancy import names
from tenancy.workload import map_at


@dataclass(frozen=True)
class Verdict:
    """The result of the comparison with the cluster.

    `problems` are the reasons to refuse the rollout, and `notes` are information for the operator.
    """

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def check(resources: Iterable[Resource], left: Leftovers, cluster: Cluster) -> Verdict:
    """Judges the changes of a preview. Raises the errors of the cluster.

    Whatever Pulumi calls the step, an object appears if the state lacks it.
    """
    changing = [each for resource in resources if resource.op is not Op.SAME and (each := declared(resource))]
    appearing = [each for each in changing if each.is_patch or each.key not in left.state]
    there = _there(cluster, appearing)
    problems = [*findings.findings((each for each in appearing if not each.is_release), there, left.state)]
    for each in appearing:
        if each.is_release:
            problems += _of_a_release(each, left, cluster)
        elif each.identity.kind == "Namespace" and (used := _used(each, there.get(each.identity.unversioned), cluster)):
            problems.append(f"{each.identity}: is in use by {used}; {findings.another_name(each)}")
    homes = (each.identity for each in appearing if each.identity.kind == "Namespace")
    missing = sorted(each.name for each in homes if each.unversioned not in there)
    again = sorted(left.unknown[each.key] for each in appearing if not each.is_patch and each.key in left.unknown)
    notes = [f"uses again what this stack made earlier: {listed(again)}"] if again else []
    if missing:
        notes.append(f"creates the namespaces {listed(missing)}; no command of ours deletes a namespace")
    return Verdict(tuple(problems), tuple(notes))


def _there(cluster: Cluster, appearing: Collection[Declared]) -> Mapping[Identity, Object]:
    wanted = {each.identity.unversioned for each in appearing}
    kinds: dict[str, set[str]] = {}
    for each in (each.identity for each in appearing if not each.is_release):
        kinds.setdefault(each.api_version, set()).add(each.kind)
    found = ((of.unversioned, each) for of, each in objects(cluster, kinds))
    return {of: each for of, each in found if of in wanted}


def _of_a_release(release: Declared, left: Leftovers, cluster: Cluster) -> Iterator[str]:
    path = f"/api/v1/namespaces/{release.identity.namespace}/secrets"
    found = cluster.items(path, labelSelector=f"owner=helm,name={release.identity.name}")
    own = {each["metadata"]["uid"] for each in left.kueue.records}
    secrets = [each for each in found if each["metadata"].get("uid") not in own]
    return findings.of_a_release(release, secrets, cluster.find(KUEUES_DEFINITION))


def _used(home: Declared, found: Object | None, cluster: Cluster) -> str:
    """Returns what people have in a namespace that the platform would take for itself."""
    if found is None or not findings.is_the_platforms(home) or patcher(found) is not None:
        return ""
    path = f"/api/v1/namespaces/{home.identity.name}"
    claims = cluster.items(f"{path}/persistentvolumeclaims")
    pods = cluster.items(f"{path}/pods", fieldSelector="status.phase=Running")
    running = (each for each in pods if map_at(each, "metadata", "labels").get(names.LABEL_PART_OF) != names.PROJECT)
    return listed(
        [
            *(f"PersistentVolumeClaim {each['metadata']['name']}" for each in claims),
            *(f"pod {each['metadata']['name']}" for each in running),
        ]
    )
