"""Tests that the API client sends requests, retries them and reports errors."""

import pytest

from agents.kube import client as api_module
from agents.kube.client import ApiError
from tests.support.fake_cluster import Fault, Served


def test_a_list_is_read_page_by_page(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "PAGE", 2)
    for number in range(5):
        served.cluster.add_node(f"node-{number}")
    names = [item["metadata"]["name"] for item in served.api().items("/api/v1/nodes")]
    assert names == [f"node-{number}" for number in range(5)]
    assert [url for _, url in served.cluster.requests] == [
        "/api/v1/nodes?limit=2",
        "/api/v1/nodes?limit=2&continue=2",
        "/api/v1/nodes?limit=2&continue=4",
    ]


def test_the_token_is_read_again_for_each_request(served: Served) -> None:
    client = served.api()
    served.cluster.objects["/x"] = {}
    client.get("/x")
    (served.mount / "token").write_text("token-2\n")
    client.get("/x")
    assert served.cluster.tokens == ["token-1", "token-2"]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_server_in_trouble_is_asked_again_with_growing_pauses(served: Served, status: int) -> None:
    served.cluster.objects["/x"] = {"found": True}
    served.cluster.faults = [Fault("GET", "/x", status, times=3)]
    assert served.api().get("/x") == {"found": True}
    assert served.time.slept == [0.25, 0.5, 1.0]


@pytest.mark.parametrize(("asked", "slept"), [("7", 7.0), ("86400", 30.0)])
def test_a_retry_waits_as_long_as_the_server_asks_up_to_30_seconds(served: Served, asked: str, slept: float) -> None:
    served.cluster.objects["/x"] = {}
    served.cluster.faults = [Fault("GET", "/x", 429, headers={"Retry-After": asked})]
    served.api().get("/x")
    assert served.time.slept == [slept]


def test_retries_end(served: Served) -> None:
    served.cluster.faults = [Fault("GET", "/x", 503, "ServiceUnavailable", "etcd is away", times=99)]
    with pytest.raises(ApiError, match="GET /x: 503 ServiceUnavailable: etcd is away") as caught:
        served.api().get("/x")
    assert caught.value.transient
    assert len(served.cluster.requests) == 4


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_a_refusal_is_not_repeated(served: Served, status: int) -> None:
    served.cluster.faults = [Fault("GET", "/x", status, "Because", "no", times=99)]
    with pytest.raises(ApiError) as caught:
        served.api().get("/x")
    assert (caught.value.status, caught.value.reason, caught.value.message) == (status, "Because", "no")
    assert not caught.value.transient
    assert len(served.cluster.requests) == 1


def test_an_expired_list_is_for_the_next_pass(served: Served) -> None:
    served.cluster.faults = [Fault("GET", "/api/v1/nodes", 410, "Expired", "too old")]
    with pytest.raises(ApiError) as caught:
        list(served.api().items("/api/v1/nodes"))
    assert caught.value.transient
    assert served.time.slept == []
