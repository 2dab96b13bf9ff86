"""Asks the API server what an account may do. After a change of roles, its answers change with a delay."""

from collections.abc import Sequence

from tests.support.waiting import eventually
from toolchain.cluster.api import ClusterApi

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def may(
    api: ClusterApi,
    user: str,
    verb: str,
    resource: str,
    *,
    group: str = "",
    namespace: str = "",
    groups: Sequence[str] = (),
) -> bool:
    kind, _, subresource = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": kind, "subresource": subresource, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": list(groups), "resourceAttributes": asked},
    }
    return bool(api.create(REVIEWS, review)["status"]["allowed"])


def await_right(api: ClusterApi, user: str, verb: str, resource: str, *, group: str = "", namespace: str = "") -> None:
    what = f"{user} may {verb} {resource}"
    eventually(lambda: may(api, user, verb, resource, group=group, namespace=namespace), what, pause_seconds=0.1)
