from typing import Any

import pytest
import yaml

from components.kueue import Chart, Kueue, KueueArgs, KueueSpec
from tenancy.names import QUEUE_TENANT
from tests.support.engine import Graph, names
from tests.support.given import declared

SPEC = KueueSpec(version="0.19.2", exclude_resource_prefixes=["cpu", "memory"])


def install(chart: Chart) -> Graph:
    return declared(Kueue, "kueue", KueueArgs(spec=SPEC, chart=chart))


@pytest.fixture(scope="module")
def graph() -> Graph:
    return install(Chart(address="./charts/kueue"))


@pytest.fixture(scope="module")
def configuration(graph: Graph) -> dict[str, Any]:
    return yaml.safe_load(graph.one("Release").inputs["values"]["managerConfig"]["controllerManagerConfigYaml"])


def test_it_is_a_release_in_a_restricted_namespace_of_its_own(graph: Graph) -> None:
    assert names(graph.children(graph.one("Kueue"))) == {"kueue-namespace", "kueue-release"}
    namespace, release = graph.one("Namespace"), graph.one("Release")
    assert namespace.inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert release.inputs["namespace"] == namespace.inputs["metadata"]["name"] == "kueue-system"
    assert graph.depends_on(release, namespace)


def test_the_release_has_the_name_that_kueues_objects_are_called_by(graph: Graph) -> None:
    assert graph.one("Release").inputs["name"] == "kueue"


def test_the_chart_of_a_folder_has_no_version_and_that_of_a_registry_has_one(graph: Graph) -> None:
    assert graph.one("Release").inputs["chart"] == "./charts/kueue"
    assert "version" not in graph.one("Release").inputs
    remote = install(Chart(address="oci://registry.example/kueue", version="0.19.2")).one("Release").inputs
    assert (remote["chart"], remote["version"]) == ("oci://registry.example/kueue", "0.19.2")


def test_it_waits_until_the_webhooks_answer(graph: Graph) -> None:
    release = graph.one("Release").inputs
    assert not release.get("skipAwait")
    assert release["timeout"] == 600


def test_the_image_is_the_released_one(graph: Graph) -> None:
    values = graph.one("Release").inputs["values"]
    assert values["controllerManager"]["manager"]["image"] == {
        "repository": "registry.k8s.io/kueue/kueue",
        "tag": "v0.19.2",
        "pullPolicy": "IfNotPresent",
    }
    assert (values["enableCertManager"], values["enableKueueViz"]) == (False, False)


def test_only_labelled_jobs_of_queue_tenants_are_managed(configuration: dict[str, Any]) -> None:
    assert configuration["manageJobsWithoutQueueName"] is False
    assert configuration["integrations"] == {"frameworks": ["batch/job"]}
    assert configuration["managedJobsNamespaceSelector"] == {"matchLabels": {QUEUE_TENANT: "true"}}


def test_what_the_queues_do_not_count_is_excluded(configuration: dict[str, Any]) -> None:
    assert configuration["resources"] == {"excludeResourcePrefixes": ["cpu", "memory"]}


def test_a_job_that_is_admitted_and_finds_no_place_is_evicted_in_time(configuration: dict[str, Any]) -> None:
    assert configuration["waitForPodsReady"]["timeout"] == "30m"


def test_queues_can_be_watched_and_certificates_look_after_themselves(configuration: dict[str, Any]) -> None:
    assert configuration["metrics"]["enableClusterQueueResources"] is True
    assert configuration["internalCertManagement"] == {"enable": True}
