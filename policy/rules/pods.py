"""Rules on pod templates: the pods of our agents are hardened, and every image is pinned."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from policy.finding import UNREADABLE, Finding, first_items, judge_each
from policy.graph import Graph
from policy.objects import Object, text_at, texts_at
from policy.rule import A_RESIDENT, MAIN, Example, rule
from tenancy import names, reach
from tenancy.image import PINNED, PINNED_OF_OTHERS, is_pinned, is_pinned_of_others
from tenancy.workload import containers_of, map_at, maps_at, pod_template

_PART_OF = names.LABEL_PART_OF


@dataclass(frozen=True)
class _Need:
    """Lists the privileges that one agent needs. An agent with capabilities runs as root."""

    host_pid: bool = False
    host_paths: frozenset[str] = frozenset()  # The agent may read the path if a pool has `enforce: driver`.
    capabilities: frozenset[str] = frozenset()


# NVML reports the host's process IDs, so the exporter needs them. The guard lowers the oom_score_adj of the host's
# processes.
_NEEDS: Mapping[str, _Need] = {
    names.EXPORTER: _Need(host_pid=True, host_paths=frozenset({names.CGROUPS})),
    names.GUARD: _Need(host_pid=True, capabilities=frozenset({"SYS_RESOURCE", "DAC_OVERRIDE"})),
}


@rule(
    "hardened",
    Example(
        "spec.jobTemplate.spec.template.spec.containers.0.resources.limits",
        {},
        {"memory": "64Mi"},
        of="CronJob gpu-tenancy-system/gpu-vram-watchdog",
    ),
)
def hardened(graph: Graph) -> Iterator[Finding]:
    """The pods of the platform's agents have only the privileges that they need."""
    reads_caps = graph.ledger is not None and any(pool.caps for pool in graph.ledger.pools)
    yield from judge_each(graph.workloads, lambda workload: _ours(workload, reads_caps=reads_caps))


def _ours(workload: Object, *, reads_caps: bool) -> Iterator[Finding]:
    template = pod_template(workload.manifest) or {}
    labels = map_at(template, "metadata", "labels")
    if labels.get(_PART_OF) != names.PROJECT:
        return
    pod_spec, need = map_at(template, "spec"), _NEEDS.get(text_at(labels, names.LABEL_NAME), _Need())
    if not reads_caps:
        need = replace(need, host_paths=frozenset())
    wrong = [*_pod_problems(pod_spec, need), *_run_problems(workload)]
    for container in containers_of(pod_spec):
        wrong += [
            f"container {container.get('name')}: {problem}"
            for problem in _container_problems(pod_spec, container, need)
        ]
    for problem in wrong:
        yield Finding(f"{workload}: {problem}", workload.urn)


def _pod_problems(pod_spec: Mapping[str, Any], need: _Need) -> Iterator[str]:
    shared = {"hostNetwork", "hostIPC"} if need.host_pid else {"hostNetwork", "hostIPC", "hostPID"}
    yield from (f"{field} must be off" for field in sorted(shared) if pod_spec.get(field))
    for volume in maps_at(pod_spec, "volumes"):
        path = volume.get("hostPath")
        if path is not None and not (
            text_at(map_at(volume, "hostPath"), "path") in need.host_paths and _is_read(pod_spec, volume)
        ):
            yield f"volume {volume.get('name')} is a hostPath; our agents need none"
    security = map_at(pod_spec, "securityContext")
    if security.get("runAsNonRoot") is not True:
        yield "securityContext.runAsNonRoot must be true"
    if map_at(security, "seccompProfile").get("type") != "RuntimeDefault":
        yield "securityContext.seccompProfile.type must be RuntimeDefault"


def _is_read(pod_spec: Mapping[str, Any], volume: Mapping[str, Any]) -> bool:
    mounts = (mount for container in containers_of(pod_spec) for mount in maps_at(container, "volumeMounts"))
    return all(mount.get("readOnly") is True for mount in mounts if mount.get("name") == volume.get("name"))


def _container_problems(pod_spec: Mapping[str, Any], container: Mapping[str, Any], need: _Need) -> Iterator[str]:
    security = map_at(container, "securityContext")
    for field, wanted in (("allowPrivilegeEscalation", False), ("readOnlyRootFilesystem", True)):
        if security.get(field) is not wanted:
            yield f"securityContext.{field} must be {str(wanted).lower()}"
    if security.get("privileged"):
        yield "must not be privileged"
    if not need.capabilities:
        if security.get("runAsNonRoot") is False:
            yield "must not undo the pod's runAsNonRoot"
        if 0 in (security.get("runAsUser"), map_at(pod_spec, "securityContext").get("runAsUser")):
            yield "must not run as user 0"
    capabilities = map_at(security, "capabilities")
    if "ALL" not in texts_at(capabilities, "drop") or set(texts_at(capabilities, "add")) - need.capabilities:
        few = f"none but {' and '.join(sorted(need.capabilities))}" if need.capabilities else "none"
        yield f"must drop ALL capabilities and add {few}"
    if map_at(container, "resources", "limits").get("memory") is None:
        yield "needs a memory limit"


def _run_problems(workload: Object) -> Iterator[str]:
    """Reports a Job without a deadline, and a CronJob with a run that could delay the next run."""
    if workload.kind not in ("Job", "CronJob"):
        return
    job = map_at(workload.manifest, "spec")
    if workload.kind == "CronJob":
        if job.get("concurrencyPolicy") != "Allow":
            yield "concurrencyPolicy must be Allow"
        job = map_at(job, "jobTemplate", "spec")
    if job.get("activeDeadlineSeconds") is None:
        yield "needs activeDeadlineSeconds"


@rule("images", Example(f"{MAIN}.image", "ghcr.io/a/b:latest", "ghcr.io/a/b:1.2.3", of=A_RESIDENT))
def images(graph: Graph) -> Iterator[Finding]:
    """Every image is pinned by a digest or a full version. Therefore the cluster runs the same image that the
    policy pack has judged. The rule judges only programs that declare the ledger or a workload that reaches a GPU."""
    if not judges_images(graph):
        return
    unpinned: dict[str, list[Object]] = {}
    yield from judge_each(graph.workloads, lambda workload: _images(unpinned, workload))
    yield from (_unpinned(image, users) for image, users in unpinned.items())


def judges_images(graph: Graph) -> bool:
    """Returns True if the program declares the ledger, or if one of its workloads reaches a GPU."""
    domain = graph.ledger.names if graph.ledger else names.Names("")
    return bool(graph.ledger_objects or graph.requests) or any(_may_reach(found, domain) for found in graph.workloads)


def _may_reach(workload: Object, domain: names.Names) -> bool:
    """Returns True if the workload reaches a GPU, or cannot be read."""
    try:
        return any(reach.routes(map_at(pod_template(workload.manifest) or {}, "spec"), domain))
    except UNREADABLE:
        return True


def _images(unpinned: dict[str, list[Object]], workload: Object) -> Iterator[Finding]:
    """Maps each unpinned image to the objects that use it. Each unpinned image becomes one finding."""
    is_fixed = is_pinned if _is_ours(workload) else is_pinned_of_others
    for container in containers_of(map_at(pod_template(workload.manifest) or {}, "spec")):
        image = text_at(container, "image")
        users = unpinned.setdefault(image, []) if not is_fixed(image) else []
        if workload not in users:
            users.append(workload)
    yield from ()


def _unpinned(image: str, users: list[Object]) -> Finding:
    ours = all(map(_is_ours, users))
    key, pinned = ("cluster.agent_image: ", PINNED) if ours else ("", PINNED_OF_OTHERS)
    used_by = first_items(sorted(map(str, users)))
    return Finding(f"{key}image {image or '(none)'} is not pinned; write {pinned}; used by {used_by}", users[0].urn)


def _is_ours(workload: Object) -> bool:
    labels = map_at(pod_template(workload.manifest) or {}, "metadata", "labels")
    return bool(labels.get(_PART_OF) == names.PROJECT)
