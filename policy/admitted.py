"""Judges a pod by the admission policies that the stack puts in force, before the pod exists.

The API server judges the same policies on the pod itself. Two checks are Kubernetes' own, and stand here in Python: the
Pod Security level of a tenant's namespace, and that no new pod has debug containers.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from policy.cel import Encoder, Policy, Verdict, judges_new_pods
from policy.finding import Finding, unproven
from policy.objects import Object
from policy.queued import moved_label
from policy.unknown import UnprovenError, is_unknown, unknown
from tenancy import names, policy_names, reach
from tenancy.admission.parts import AdmissionRules, parts
from tenancy.frameworks import FRAMEWORKS, GATES
from tenancy.ledger import AdmissionTerms, Ledger
from tenancy.names import LABEL_NAMESPACE
from tenancy.pod_security import node_access_fields
from tenancy.policy_names import Refusal
from tenancy.workload import Manifest, containers_of, map_at, maps_at, pod_request, pod_template

# These parts say nothing about a pod: if a namespace has the labels that the stack gives it, where a pod goes, and how
# agents find it.
_ABOUT_NO_POD = (
    policy_names.POD_SECURITY,
    policy_names.PLACE_QUEUED,
    policy_names.PLACE_SEATED,
    policy_names.GPU_POD_STAMP,
)


# A part on the left adds nothing for a reader who is told about a part on the right: a pod of no tenant has no budget,
# a container that chooses its device hides the scheduler's, and a pod that names its seat has the size of this seat.
_FOLLOWS = {
    policy_names.GPU_BUDGET: {policy_names.GPU_TENANTS},
    policy_names.DEVICE_RUNTIMES: {policy_names.GPU_TENANTS, policy_names.GPU_BUDGET},
    policy_names.GPU_COUNT_USE: {policy_names.GPU_TENANTS, policy_names.GPU_BUDGET},
    policy_names.DEVICE_PLACED: {policy_names.DEVICE_CHOICE},
    policy_names.SEAT_SIZES: {policy_names.SEAT_LABELS},
}


@dataclass(frozen=True)
class PodJudge:
    """Judges a pod in the namespace `namespace`. The pod has the metadata and the spec of `template`.

    With `queued`, the pod counts as a pod that Kueue holds back. `handlers` maps each known RuntimeClass to its
    handler.
    """

    ledger: Ledger
    namespace: str
    template: Manifest
    queued: bool = False
    handlers: Mapping[str, Any] = field(default_factory=dict)

    def refusals(self) -> list[Refusal]:
        """Returns the reasons why the API server would certainly deny the pod, or an empty list. `unknown_paths`
        has what further reasons depend on.

        Raises UnprovenError for an unknown list or map, QuantityError and ShapeError.
        """
        told = [each for each in self._certain if not self._is_said(each.part)]
        return [replace(each, message=f"{self._way(each.part)}{each.message}{self._or_exempt}") for each in told]

    @property
    def unknown_paths(self) -> list[str]:
        """Returns the paths of the unknown values on which further reasons depend. Raises as `refusals` does."""
        paths = [verdict.unproven for part, verdict in self._verdicts if verdict.unproven and not self._follows(part)]
        return list(dict.fromkeys(paths))

    def findings(self, found: Object, said: Callable[[Refusal], bool] = lambda _: False) -> Iterator[Finding]:
        """Yields a finding for each reason, except for those that other rules have `said`. Names the place to which a
        label for the queue must move. Raises as `refusals` does."""
        for refusal in self.refusals():
            if not said(refusal):
                moved = moved_label(found) if refusal.part == policy_names.QUEUED_PODS and not self.queued else ""
                yield Finding(f"{found}: {refusal.message}{moved and f'; {moved}'}", found.urn)
        for path in self.unknown_paths:
            yield unproven(found, UnprovenError(unknown(path)))

    @property
    def _or_exempt(self) -> str:
        """Returns the way out for programs that the cluster itself needs, such as a device plugin. They can have no
        exempt namespace that is a tenant's, or in which everything without a namespace ends."""
        if self.namespace in self.ledger.tenants_by_name or self.namespace == "default":
            return ""
        exempt = f"add {self.namespace} to admission.exempt_namespaces of the platform's stack"
        return f"; or, for a driver, a device plugin or a part of the cluster, {exempt}"

    @cached_property
    def _certain(self) -> list[Refusal]:
        judged = [Refusal(part, verdict.message) for part, verdict in self._verdicts if verdict.unproven is None]
        return [*self._of_kubernetes(), *judged] if self._is_judged else []

    def _follows(self, part: str) -> bool:
        return not _FOLLOWS.get(part, set()).isdisjoint(refusal.part for refusal in self._certain)

    def _is_said(self, part: str) -> bool:
        """Returns True if other refusals already say what to change."""
        others = {refusal.part for refusal in self._certain} - {part}
        return self._follows(part) or (part == policy_names.GPU_BUDGET and not self._routes and bool(others))

    def _way(self, part: str) -> str:
        """Returns the way on which a pod without a budget reaches a GPU."""
        names, spec = self.ledger.names, map_at(self.template, "spec")
        if part != policy_names.GPU_BUDGET or not self._routes or pod_request(spec, names.gpumem):
            return ""
        return f"{self._routes[0]}, and so "

    @cached_property
    def _routes(self) -> list[str]:
        """Returns the ways on which the pod reaches a GPU, except those that other refusals name."""
        spec = map_at(self.template, "spec")
        choosing = (each for each in containers_of(spec) if reach.chooses_device(each, self.ledger.names))
        named = {*map(reach.choice_by_environment, choosing), *(node_access_fields(spec) if self._is_held else ())}
        return [route for route in reach.routes(spec, self.ledger.names) if route not in named]

    @property
    def _is_held(self) -> bool:
        tenant = self.ledger.tenants_by_name.get(self.namespace)
        return tenant is not None and tenant.is_held

    def _of_kubernetes(self) -> Iterator[Refusal]:
        spec = map_at(self.template, "spec")
        if maps_at(spec, "ephemeralContainers"):
            yield Refusal("", "ephemeralContainers are added to a pod that runs; remove them")
        if self._is_held and (access := next(node_access_fields(spec), None)):
            level = self.ledger.tenants_by_name[self.namespace].pod_security
            yield Refusal(
                policy_names.POD_SECURITY,
                f"{access} and so reaches every device past its budget; remove it: tenants.{self.namespace} is held to "
                f"Pod Security {level}",
            )

    @property
    def _is_judged(self) -> bool:
        return self.namespace not in (names.EXEMPT_BY_NAME, *self.ledger.exempt_namespaces)

    @property
    def _account(self) -> str:
        owners = maps_at(self.template, "metadata", "ownerReferences")
        return names.REPLICA_SET_CONTROLLERS[0] if any(each.get("kind") == "ReplicaSet" for each in owners) else ""

    @cached_property
    def _verdicts(self) -> list[tuple[str, Verdict]]:
        if not self._is_judged:
            return []
        judging = [policy for policy in _policies(self.ledger) if policy.selects({LABEL_NAMESPACE: self.namespace})]
        request = {
            "operation": "CREATE",
            "namespace": self.namespace,
            "userInfo": {"username": self._account, "groups": []},
        }
        pod, encoder = _as_created(self.template, queued=self.queued), Encoder()
        given = {"object": encoder.message("Pod", pod), "oldObject": None, "request": request}
        for policy in judging:
            if patches := list(policy.patches(given)):
                for patch in patches:
                    _apply(pod, patch)
                given["object"] = encoder.message("Pod", pod)
        classes = [
            encoder.message("Params", {"metadata": {"name": name}, "handler": handler})
            for name, handler in self.handlers.items()
        ]
        return [
            (policy.name, verdict)
            for policy in judging
            for activation in ([{**given, "params": each} for each in classes] if policy.has_params else [given])
            for verdict in policy.verdicts(activation, encoder.paths)
        ]


def pods_of(workload: Object) -> Manifest:
    """Returns the template of the workload's pods. The pods of a Deployment belong to a ReplicaSet with its name."""
    template = pod_template(workload.manifest) or {}
    if workload.manifest.get("kind") != "Deployment":
        return template
    name = workload.name if is_unknown(workload.name) else f"{workload.name}-0"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "controller": True}
    return {**template, "metadata": {**map_at(template, "metadata"), "ownerReferences": [owner]}}


def judge_by(ledger: Ledger) -> Callable[[str, Manifest, bool, Mapping[str, str]], list[Refusal]]:
    """Returns `PodJudge.refusals` as a function of a namespace, a template, `queued` and the handlers."""
    return lambda namespace, template, queued, handlers: PodJudge(
        ledger, namespace, template, queued=queued, handlers=handlers
    ).refusals()


def _policies(ledger: Ledger) -> list[Policy]:
    """Returns the policies that judge new pods. Keeps them for the last ledger, because compiling takes 0.1 s."""
    if not _LAST or _LAST[0][0] is not ledger:
        _LAST[:] = [(ledger, _compiled(ledger))]
    return _LAST[0][1]


_LAST: list[tuple[Ledger, list[Policy]]] = []


def _compiled(ledger: Ledger) -> list[Policy]:
    terms = ledger.admission or AdmissionTerms(gpu_priority="", priorities={}, own=("",))
    frameworks = [FRAMEWORKS[name] for name in ledger.frameworks]
    rendered = filter(judges_new_pods, parts(AdmissionRules(ledger=ledger, terms=terms, frameworks=frameworks)))
    left_out = _ABOUT_NO_POD if ledger.admission else (*_ABOUT_NO_POD, policy_names.PRIORITY_SYSTEM)
    return [Policy(each) for each in rendered if not each["metadata"]["name"].startswith(left_out)]


def _as_created(template: Manifest, *, queued: bool) -> dict[str, Any]:
    """Returns the pod with the defaults that the API server adds before the policies judge it."""
    metadata, spec = dict(map_at(template, "metadata")), dict(map_at(template, "spec"))
    spec.setdefault("schedulerName", "default-scheduler")
    for key in ("containers", "initContainers"):
        if listed := maps_at(spec, key):
            spec[key] = [_with_requests(each) for each in listed]
    if queued:
        spec["schedulingGates"] = [{"name": GATES[0]}]
    return {"metadata": metadata, "spec": spec}


def _with_requests(container: Manifest) -> Manifest:
    """Returns the container with a request for each of its limits, as the API server adds it."""
    resources = map_at(container, "resources")
    limits = map_at(resources, "limits")
    if not limits or is_unknown(resources.get("requests")):
        return container
    return {**container, "resources": {**resources, "requests": {**limits, **map_at(resources, "requests")}}}


def _apply(pod: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """Applies a JSON patch to the pod. Copies what it changes, because the template is the caller's."""
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in patch["path"].split("/")[1:])
    at: Any = pod
    for part in parents:
        key = int(part) if isinstance(at, list) else part
        at[key] = copy.copy(at[key])
        at = at[key]
    if patch["op"] == "remove":
        del at[last]
    elif isinstance(at, list):
        at.append(patch["value"])
    else:
        at[last] = patch["value"]
