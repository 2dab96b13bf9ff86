"""The API server accepts the examples of queued work. The CRDs of JobSet, Ray and the other kinds are installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.e2e.rollout import eventually
from tests.support.e2e.server import NAMESPACES, ApiServer
from tests.support.paths import ROOT

KINDS = ROOT / ".toolchain" / "frameworks"
WORK = sorted((ROOT / "examples" / "kueue-demo" / "work").glob("*.yaml"))
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PLURALS = {"JobSet": "jobsets", "RayJob": "rayjobs", "RayCluster": "rayclusters", "TrainJob": "trainjobs"}


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> Iterator[ApiServer]:
    if not KINDS.is_dir():
        pytest.skip("the kinds of other projects are not there: `make e2e` takes them out of Go modules where Go is")
    server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}, "namespaces")
    found = [
        each for file in sorted(KINDS.glob("*/*.yaml")) for each in yaml.load_all(file.read_text(), yaml.CSafeLoader)
    ]
    definitions = [each for each in found if each and each["kind"] == "CustomResourceDefinition"]
    for definition in definitions:
        definition["spec"].pop("conversion", None)
        server.api.create(DEFINITIONS, definition)
    yield server
    for definition in definitions:
        server.api.request("DELETE", f"{DEFINITIONS}/{definition['metadata']['name']}")


@pytest.mark.parametrize("file", WORK, ids=lambda file: file.stem)
def test_the_api_server_knows_every_field_of_the_example(cluster: ApiServer, file: Path) -> None:
    for manifest in yaml.safe_load_all(file.read_text()):
        group = manifest["apiVersion"] if "/" in manifest["apiVersion"] else ""
        plural = PLURALS.get(manifest["kind"], f"{manifest['kind'].lower()}s")
        base = f"/apis/{group}" if group else "/api/v1"
        assert manifest["metadata"]["namespace"] == "team-a"
        path = f"{base}{NAMESPACES.removeprefix('/api/v1')}/team-a/{plural}?dryRun=All&fieldValidation=Strict"
        # The API server serves a new kind only some moments after the CustomResourceDefinition exists.
        eventually(lambda path=path: cluster.request("GET", path.partition("?")[0]).code == 200, f"{plural} are served")
        assert cluster.request("POST", path, manifest).refusal is None
