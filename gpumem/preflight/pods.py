"""Tries the pods that the stack would start, and reports what the cluster lacks for them.

The API server itself judges each pod in a dry run, which stores nothing: it knows its RuntimeClasses, quotas, levels of
Pod Security, security context constraints and webhooks better than a list of checks. Before a first rollout the pods'
namespace is missing, so the dry run takes the namespace `default`, where the level of Pod Security is another one.
"""

import http.client
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from agents.kube.errors import ApiError
from gpumem.preflight.declared import Declared, DeclaredPod
from gpumem.preflight.part import Part, State
from gpumem.survey import Survey
from tenancy.names import GPU_RUNTIME_CLASS
from tenancy.workload import containers_of, map_at, maps_at, text_at

_OPENSHIFT = "security.openshift.io"
_ELSEWHERE = "default"
_OF_POD_SECURITY = "violates PodSecurity"
# Before the rollout, the account of a pod may be missing, even the one of `default` in a cluster that just started.
_OF_THE_ACCOUNT = "error looking up service account"
# Answers that say nothing about the pod. Every status from 500 on is another one.
_NO_VERDICT = (None, http.client.METHOD_NOT_ALLOWED, http.client.UNAUTHORIZED, http.client.TOO_MANY_REQUESTS)
# What the stack itself creates before its pods, so that it may be missing now.
_CREATED_FIRST = ("serviceAccountName", "serviceAccount", "priorityClassName")


class DryRunner(Protocol):
    """The method with which preflight tries a pod."""

    def dry_run(self, path: str, manifest: Mapping[str, Any]) -> None:
        """Asks the API server to create an object without storing it. Raises ApiError."""
        ...


def static_parts(survey: Survey, declared: Declared) -> Iterator[Part]:
    """Yields what the lists of the cluster already show to be missing for the stack's pods."""
    needed: dict[str, list[str]] = {}
    for pod in declared.pods:
        if (name := text_at(pod.template["spec"], "runtimeClassName")) and name not in survey.handlers:
            needed.setdefault(name, []).append(f"the pods of {pod.workload}")
    admission = declared.ledger.admission
    if admission is not None and admission.devices and GPU_RUNTIME_CLASS not in survey.handlers:
        needed.setdefault(GPU_RUNTIME_CLASS, []).append("the seats that scheduler places")
    for name, users in needed.items():
        explained = (
            f"{' and '.join(users)} run under it, and the API server refuses a pod whose RuntimeClass is missing; make "
            f"it with the handler {name} (NVIDIA's toolkit)"
        )
        yield Part(name=f"RuntimeClass {name}", state=State.MISSING, text=explained, blocks=True)
    restricted = [pod for pod in declared.pods if _needs_constraint(pod)] if _OPENSHIFT in survey.groups else []
    if restricted:
        grants = " and ".join(map(_grant, restricted))
        explained = f"OpenShift refuses the agents' pods unless their ServiceAccounts may use one; if not, run {grants}"
        yield Part(name="SecurityContextConstraints", state=State.UNKNOWN, text=explained, blocks=False)


def tried_parts(runner: DryRunner, survey: Survey, declared: Declared) -> Iterator[Part]:
    """Yields the pods of the stack that the API server refuses in a dry run."""
    known = " ".join(part.name for part in static_parts(survey, declared))
    for pod in declared.pods:
        if text_at(pod.template["spec"], "runtimeClassName") in known.split():
            continue  # the API server would only say it again
        try:
            runner.dry_run(*_request(pod, survey))
        except ApiError as error:
            yield from _refused(pod, error, exists=pod.workload.namespace in survey.namespaces)


def _request(pod: DeclaredPod, survey: Survey) -> tuple[str, Mapping[str, Any]]:
    exists = pod.workload.namespace in survey.namespaces
    namespace = pod.workload.namespace if exists else _ELSEWHERE
    spec = {key: value for key, value in pod.template["spec"].items() if exists or key not in _CREATED_FIRST}
    metadata = {"generateName": f"{pod.workload.name}-", "labels": map_at(pod.template, "metadata", "labels")}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return f"/api/v1/namespaces/{namespace}/pods", manifest


def _refused(pod: DeclaredPod, error: ApiError, *, exists: bool) -> Iterator[Part]:
    name = f"pods of {pod.workload}"
    if "cannot create resource" in error.message or error.status in _NO_VERDICT or (error.status or 500) >= 500:
        explained = f"this account may not try them in a dry run, so only `up` shows if the cluster takes them: {error}"
        yield Part(name=name, state=State.UNKNOWN, text=explained, blocks=False)
    elif _OF_THE_ACCOUNT not in error.message and (exists or _OF_POD_SECURITY not in error.message):
        where = "" if exists else f" in {_ELSEWHERE}, as their namespace is not there yet"
        certain = exists or error.status == http.client.UNPROCESSABLE_ENTITY
        explained = f"the API server refuses them{where}: {error.message}"
        yield Part(name=name, state=State.MISSING if certain else State.UNKNOWN, text=explained, blocks=certain)


def _needs_constraint(pod: DeclaredPod) -> bool:
    spec = pod.template["spec"]
    return bool(_is_of_the_host(pod) or "runAsUser" in map_at(spec, "securityContext"))


def _is_of_the_host(pod: DeclaredPod) -> bool:
    spec = pod.template["spec"]
    mounts = any("hostPath" in volume for volume in maps_at(spec, "volumes"))
    added = any(map_at(each, "securityContext", "capabilities").get("add") for each in containers_of(spec))
    return bool(spec.get("hostPID") or mounts or added)


def _grant(pod: DeclaredPod) -> str:
    constraint, account = "nonroot-v2", text_at(pod.template["spec"], "serviceAccountName")
    if _is_of_the_host(pod):
        constraint = "privileged"
    return f"oc adm policy add-scc-to-user {constraint} -z {account} -n {pod.workload.namespace}"
