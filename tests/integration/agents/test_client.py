"""Tests the API client with a server over real TLS."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agents.kube import client as api_module
from agents.kube.client import Api, ApiError
from agents.kube.transport import Https
from tests.support.api_server import ServedOverTls
from tests.support.fake_cluster import Fault

POD = "/api/v1/namespaces/immich/pods/ml"


def test_a_server_that_another_ca_signed_is_refused_at_once(served: ServedOverTls, certificates: Path) -> None:
    shutil.copy(certificates / "stranger.crt", served.mount / "ca.crt")
    with pytest.raises(ApiError, match="certificate") as caught:
        served.api().get("/api/v1/nodes")
    assert not caught.value.transient
    assert served.time.slept == []
    assert served.cluster.requests == []


def test_a_certificate_for_another_host_is_refused(served: ServedOverTls) -> None:
    endpoint = replace(served.endpoint(), host="localhost")
    with pytest.raises(ApiError, match="certificate"):
        Api(endpoint, clock=served.time.clock()).get("/api/v1/nodes")


def test_a_connection_that_broke_is_made_again(served: ServedOverTls) -> None:
    https = Https(served.endpoint())
    client = Api(served.endpoint(), clock=served.time.clock(), transport=https)
    served.cluster.objects["/x"] = {}
    client.get("/x")
    https._connection.sock.close()  # noqa: SLF001 (it breaks beneath its client)
    assert client.get("/x") == {}
    client.close()


@pytest.mark.parametrize("nodes", [1, 400])
def test_of_an_answer_that_is_too_large_no_more_is_read_and_the_connection_goes(
    served: ServedOverTls, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "PAGE_BYTES", 50_000)
    for number in range(nodes):
        served.cluster.add_node(f"node-{number:03}", labels={"large": "x" * 2_000})
    https = Https(served.endpoint())
    client = Api(served.endpoint(), clock=served.time.clock(), transport=https)
    names = [item["metadata"]["name"] for item in client.items("/api/v1/nodes")]
    client.close()
    assert names == [f"node-{number:03}" for number in range(nodes)]
    if nodes > 1:
        pages = [url.partition("limit=")[2].partition("&")[0] for _, url in served.cluster.requests]
        assert pages[:4] == ["100", "50", "25", "12"]


def test_a_server_that_is_away_is_a_transient_error(served: ServedOverTls) -> None:
    client = Api(replace(served.endpoint(), port=1), clock=served.time.clock())
    with pytest.raises(ApiError, match="NoAnswer") as caught:
        client.get("/x")
    assert caught.value.transient
    assert len(served.time.slept) == 3


def test_headers_bodies_and_refusals_pass_the_wire(served: ServedOverTls) -> None:
    now = datetime(2026, 6, 2, 12, 0, 7, tzinfo=UTC)
    served.cluster.now = now
    served.cluster.pods = [{"metadata": {"namespace": "immich", "name": "ml", "uid": "new"}}]
    served.cluster.faults = [Fault("POST", f"{POD}/eviction", 429, headers={"Retry-After": "7"})]
    api = served.api()
    with pytest.raises(ApiError, match="eviction: 409 Conflict: the UID in the precondition does not match"):
        api.evict(namespace="immich", pod="ml", uid="old")
    assert served.time.slept == [7.0]
    assert api.time == now
    assert served.cluster.tokens == ["token-1", "token-1"]
    assert served.cluster.agents == ["gpu-tenancy", "gpu-tenancy"]
    assert served.cluster.bodies[-1]["deleteOptions"]["preconditions"] == {"uid": "old"}
