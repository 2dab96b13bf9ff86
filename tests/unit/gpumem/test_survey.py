"""Tests the errors of the survey. Each error names the verb and the resource of the failed request."""

from dataclasses import dataclass

import pytest

from agents.kube.errors import ApiError, Object
from agents.kube.nodes import NODES
from agents.kube.pods import PODS
from agents.kube.slices import SLICES
from gpumem import survey
from gpumem.survey import SurveyError
from tests.support.given_clusters import record_0000
from tests.support.kubectl import FakeApi


@dataclass
class Down:
    status: int | None
    message: str

    def get(self, path: str) -> Object:
        raise ApiError(f"GET {path}", self.status, "Failed", self.message)

    def items(self, path: str, **parameters: str) -> list[Object]:
        raise ApiError(f"GET {path}", self.status, "Failed", self.message)


@pytest.mark.parametrize(
    ("status", "message"), [(None, "connection refused"), (502, "bad gateway"), (500, "dial tcp [::1]:8080: refused")]
)
def test_a_cluster_that_is_down_is_reported_as_such(status: int | None, message: str) -> None:
    with pytest.raises(SurveyError, match=r"the cluster does not answer, so nothing was read: GET /apis: "):
        survey.read(Down(status, message))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (NODES, "may not list nodes: may not"),
        (PODS, "may not list pods: may not"),
        (survey.NAMESPACES, "may not list namespaces: may not"),
        (survey.VERSION, "may not get the server's version"),
    ],
)
def test_a_refused_list_is_named_with_its_verb_and_resource(path: str, text: str) -> None:
    api = record_0000().api()
    api.refused.add(path)
    with pytest.raises(SurveyError, match=text):
        survey.read(api)


def test_nothing_is_read_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """An account that may only list is enough. Each account may read the groups and the version."""
    api, asked = record_0000().api(), []
    monkeypatch.setattr(FakeApi, "get", lambda self, path: (asked.append(path), self.objects[path])[1])
    assert survey.read(api).gaps == ()
    assert set(asked) == {survey.GROUPS, survey.VERSION}


def test_a_list_that_is_not_needed_leaves_a_gap() -> None:
    api = record_0000().api()
    api.refused |= {SLICES, survey.PRIORITIES}
    del api.lists[survey.RUNTIME_CLASSES]
    found = survey.read(api)
    assert [gap.partition(":")[0] for gap in found.gaps] == [
        "resourceslices are not known",
        "priorityclasses are not known",
    ]
    assert (found.priorities, found.handlers) == ({}, {})


def test_parts_that_the_cluster_does_not_serve_are_not_asked_for() -> None:
    api = record_0000().api()
    for path in (survey.CLUSTER_QUEUES, survey.LOCAL_QUEUES, survey.PROMETHEUSES):
        api.refused.add(path)
    assert survey.read(api).gaps == ()


def test_an_older_kueue_is_a_gap() -> None:
    cluster = record_0000()
    cluster.groups = {"kueue.x-k8s.io": ("v1beta1",)}
    api: FakeApi = cluster.api()
    del api.lists[survey.CLUSTER_QUEUES]
    assert survey.read(api).gaps == ("clusterqueues are not known: this cluster does not serve kueue.x-k8s.io/v1beta2",)


@pytest.mark.parametrize(("version", "minor"), [("v1.36.3", (1, 36)), ("v1.34.1+k3s1", (1, 34)), ("odd", (0, 0))])
def test_the_minor_version_is_read_from_any_release(version: str, minor: tuple[int, int]) -> None:
    cluster = record_0000()
    cluster.version = version
    assert survey.read(cluster.api()).minor == minor
