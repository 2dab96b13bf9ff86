"""The defects of Aliyun's gpushare-scheduler-extender (c0b6141), each by its name.

Numbers are issues of AliyunContainerService/gpushare-scheduler-extender and, where said, of its device plugin; letters
count what its source shows. What of them concerns containers is tested on a real node (tests/e2e/prod).
"""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.extender import certs
from agents.extender.cache.cache import RESERVE_SECONDS, AssumedPod, Cache, NotAssumed
from agents.extender.cache.inventory import NodeDevice, NodeDevices
from agents.extender.cache.pod_info import allocated, ask_of
from agents.extender.cache.snapshot import Drift
from components.agents.exporter import ExporterSpec
from components.agents.scheduler import (
    SchedulerArgs,
    SchedulerSpec,
    configuration,
    deployment,
    disruption_budget,
    network_policy,
    scheduler_agent,
)
from tenancy.devices.allocate import Ask
from tenancy.ledger import PlacementMode
from tests.support.api_server import ServedOverTls
from tests.support.devices import bound, inventory, ledger_of, pod_object, take
from tests.support.extenders import PATIENCE_SECONDS, Extender, eventually, publish, running
from tests.support.fake_cluster import NAMES, T4, Fault
from tests.support.given import CLUSTER, CODE, LEDGER, PROMETHEUS, SCRAPED

DECLARED = SchedulerArgs(
    spec=SchedulerSpec(placement=PlacementMode.EXTENDER),
    cluster=CLUSTER,
    code=CODE,
    ledger=LEDGER,
    exporter=ExporterSpec(),
)


@pytest.fixture
def extender(served: ServedOverTls, zipapp: Path, tmp_path: Path) -> Iterator[Extender]:
    """The shipped one, of a node with a device of 8000 MiB and one of 4000."""
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    publish(served.cluster, 8000 + T4.reserve_mib, 4000 + T4.reserve_mib)
    folder = tmp_path / "certificates"
    folder.mkdir()
    with running(served, zipapp, folder) as found:
        yield found


def free(cache: Cache) -> list[int]:
    (node,) = cache.snapshot()
    return [device.free_mib for device in node.devices]


def test_a_unsigned_difference_lets_an_overbooked_device_pass_the_filter() -> None:
    """`avail` is unsigned there: used > total wraps to a huge number."""
    cache = ledger_of(inventory("N", 8000))
    for uid in "ab":
        cache.update_pod(bound(uid, "N", 5000, 0))
    assert free(cache) == [0]
    assert cache.fit("new", Ask(1), ["N"], 0.0).nodes == ()


def test_b_memory_is_released_when_the_grace_period_begins() -> None:
    """Its cache drops a pod at deletionTimestamp, while its processes still hold the memory."""
    pod = pod_object("8000", annotations={NAMES.device_index: "0"}, phase="Running")
    pod["metadata"]["deletionTimestamp"] = "2026-11-21T05:00:00Z"
    held = allocated(pod, NAMES)
    assert held is not None
    cache = ledger_of(inventory("k8s-node1", 8000))
    cache.update_pod(held)
    assert free(cache) == [0]
    cache.remove_pod(held.uid)
    assert free(cache) == [8000]


@pytest.mark.parametrize("message", ["the object has been modified", ""])
def test_c_a_conflict_is_looked_for_in_the_words_of_the_error_and_never_found(
    served: ServedOverTls, extender: Extender, message: str
) -> None:
    """Its retry compares the whole error with the end of it. Ours goes by the status: after a conflict that may be with
    a try of its own which got no answer, nobody guesses whether the pod was bound; its devices stay taken until the API
    has said."""
    path = "/api/v1/namespaces/team/pods/model"
    served.cluster.objects[path] = {"metadata": {"uid": "model"}, "spec": {}}
    assert extender.filter(8000, "model")["NodeNames"] == ["k8s-node1"]
    served.cluster.faults.append(Fault("POST", f"{path}/binding", 504))
    served.cluster.faults.append(Fault("POST", f"{path}/binding", 409, reason="Conflict", message=message))
    assert "409 Conflict" in extender.bind("model")["Error"]
    assert extender.filter(8000, "other")["NodeNames"] == []
    del served.cluster.objects[path]
    eventually(lambda: extender.filter(8000, "other")["NodeNames"] == ["k8s-node1"])


def test_d_a_fast_worker_leaks_a_removed_pod_until_the_restart() -> None:
    """#201 too: delete and create in loops, and memory stays in use at 0 pods. The order of news cannot matter here,
    and threads share one lock."""
    cache = ledger_of(inventory("N", 8000, 8000))

    def loop(worker: int) -> None:
        for turn in range(100):
            uid = f"pod-{worker}-{turn}"
            cache.fit(uid, Ask(500), ["N"], 0.0)
            chosen = cache.assume(uid, Ask(500), "N", 0.0)
            if isinstance(chosen, AssumedPod):
                cache.update_pod(bound(uid, "N", 500, *chosen.indices))
            cache.remove_pod(uid)

    threads = [threading.Thread(target=loop, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert free(cache) == [8000, 8000]
    assert cache.compare([], 1.0) == Drift()


def test_e_changes_of_count_and_size_are_ignored() -> None:
    """#191 and #175: its node is counted once, from zero; after a change of hardware it hands out the wrong index."""
    cache = ledger_of(inventory("N", 8000))
    cache.update_pod(bound("pod", "N", 6000, 0))
    cache.update_node(inventory("N", 16000, 4000))
    assert free(cache) == [10000, 4000]
    swapped = (NodeDevice(0, "GPU-N-new", 4000), NodeDevice(1, "GPU-N-0", 16000))
    cache.update_node(NodeDevices(node="N", pool="t4", devices=swapped))
    assert free(cache) == [4000, 10000]
    assert take(cache, "next", Ask(5000), "N") == AssumedPod((1,), ("GPU-N-0",), 5000)


def test_f_inspecting_an_unknown_node_dereferences_nil() -> None:
    cache = ledger_of(inventory("N", 8000))
    assert [node.node for node in cache.snapshot()] == ["N"]
    assert cache.pods("unknown") == ()
    assert cache.victims(Ask(1), "unknown", set(), 0.0) is None
    assert cache.assume("pod", Ask(1), "unknown", 0.0) == NotAssumed("has no GPU memory to share that is known")
    cache.measure("unknown", {0: 1}, 0.0)
    cache.remove_node("unknown")
    assert [node.node for node in cache.snapshot()] == ["N"]


def test_f_the_servers_half_an_unknown_node_is_an_answer_and_ends_no_process(extender: Extender) -> None:
    assert extender.get("/inspect/unknown") == (404, "unknown is not a node with GPU memory to share\n")
    assert extender.filter(1, nodes=("unknown",))["NodeNames"] == []
    assert "has no GPU memory to share" in extender.bind("u", node="unknown")["Error"]
    assert extender.get("/inspect/k8s-node1")[0] == 200


def test_g_inspecting_ranges_over_a_map_that_others_write() -> None:
    """A map that changes while it is iterated ends the process there."""
    cache = Cache()
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for number in range(50):
                cache.update_node(inventory(f"N{number}", 8000))
            for number in range(50):
                cache.remove_node(f"N{number}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        sizes = {len(cache.snapshot()) for _ in range(300)}
    finally:
        stop.set()
        writer.join()
    assert sizes <= set(range(51))
    assert cache.snapshot() == ()


def test_h_the_write_lock_spans_two_calls_of_the_api() -> None:
    """What is taken stays taken while its bind waits for the API, and everybody else goes on."""
    cache = ledger_of(inventory("N", 8000, 4000))
    take(cache, "slow bind", Ask(8000), "N", 0.0)
    assert cache.fit("other", Ask(4000), ["N"], 1.0).nodes == ("N",)
    assert take(cache, "other", Ask(4000), "N", 1.0).indices == (1,)
    assert isinstance(cache.assume("third", Ask(1), "N", RESERVE_SECONDS * 10), NotAssumed)


def test_h_the_servers_half_while_a_bind_waits_for_the_api_every_verb_is_answered(
    served: ServedOverTls, extender: Extender, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, may_go_on, answer = threading.Event(), threading.Event(), served.cluster.answer

    def slow(method: str, url: str, body: Any) -> Any:
        if url.endswith("/slow/binding"):
            waits.set()
            may_go_on.wait(PATIENCE_SECONDS)
        return answer(method, url, body)

    monkeypatch.setattr(served.cluster, "answer", slow)
    extender.filter(8000, "slow")
    binding = threading.Thread(target=extender.bind, args=("slow",))
    binding.start()
    try:
        assert waits.wait(PATIENCE_SECONDS)
        assert extender.filter(4000, "quick")["NodeNames"] == ["k8s-node1"]
        assert extender.bind("quick") == {"Error": ""}
        assert extender.get("/inspect")[0] == 200
        assert not may_go_on.is_set()
    finally:
        may_go_on.set()
        binding.join(PATIENCE_SECONDS)


def test_i_init_containers_are_ignored() -> None:
    container = {"resources": {"limits": {NAMES.gpumem: "1k"}}}
    larger = {"resources": {"limits": {NAMES.gpumem: "3k"}}}
    sidecar = {"restartPolicy": "Always", "resources": {"limits": {NAMES.gpumem: "500"}}}
    assert ask_of({"containers": [container], "initContainers": [larger]}, NAMES) == Ask(3000)
    assert ask_of({"containers": [container], "initContainers": [sidecar]}, NAMES) == Ask(1500)


def test_j_one_replica_that_is_recreated_and_whose_absence_stops_all_scheduling() -> None:
    """Who takes over, and how soon, is tried in tests/e2e/test_extender.py."""
    spec = deployment(DECLARED)["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    assert disruption_budget(DECLARED)["spec"]["maxUnavailable"] == 1
    election = configuration(DECLARED)["leaderElection"]
    assert election["leaderElect"] is True
    lease = scheduler_agent(DECLARED).environment["LEASE"]
    assert lease == f"{election['resourceNamespace']}/{election['resourceName']}"
    # Pods without gpumem are the default scheduler's, which asks no extender.
    (profile,) = configuration(DECLARED)["profiles"]
    assert profile["schedulerName"] != "default-scheduler"


def told(port: int, context: ssl.SSLContext | None) -> bytes:
    """What is said to who wants to bind; nothing where the connection is ended instead."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as plain:
        client = plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")
        with client:
            client.sendall(b"POST /bind HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
            return client.recv(100)
    return b""


def test_k_whoever_reaches_its_port_can_bind_pods(extender: Extender, tmp_path: Path) -> None:
    """Ours listens to who has the certificate that was made in its pod."""
    authority = extender.certificates / "ca.crt"
    nobody, stranger, own = (ssl.create_default_context(cafile=authority) for _ in range(3))
    certs.make(tmp_path)
    for context, folder in ((stranger, tmp_path), (own, extender.certificates)):
        context.load_cert_chain(folder / "client.crt", folder / "client.key")
    for refused in (None, nobody, stranger):
        assert b"HTTP" not in told(extender.verbs_port, refused)
    assert told(extender.verbs_port, own).startswith(b"HTTP/1.1 200 OK")


def test_k_its_port_is_the_nodes_and_open_to_everybody(extender: Extender) -> None:
    """Ours listens to its pod alone, and the policy opens the port of the questions, to Prometheus."""
    assert extender.bind("u")["Error"].startswith("pod team/u is gone")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", extender.verbs_port), PATIENCE_SECONDS)
    assert network_policy(DECLARED)["spec"]["ingress"] == []
    (opened,) = network_policy(replace(DECLARED, cluster=SCRAPED))["spec"]["ingress"]
    assert [each["port"] for each in opened["ports"]] == [DECLARED.spec.port]
    assert opened["from"] == [PROMETHEUS.peer]


def test_issues_143_and_185_two_containers_never_match() -> None:
    """Its plugin looks for the pod whose total equals one container's request. The pod's devices are the pod's here."""
    container = {"resources": {"limits": {NAMES.gpumem: "4069"}}}
    assert ask_of({"containers": [container, container]}, NAMES) == Ask(8138)


def test_issue_219_cards_of_unlike_size_are_counted_by_their_mean() -> None:
    """10 and 20 GB showed as twice 20: its device is the node's total over the count."""
    cache = ledger_of(inventory("N", 10240, 20480))
    assert free(cache) == [10240, 20480]
    assert cache.fit("pod", Ask(20480), ["N"], 0.0).nodes == ("N",)
    assert cache.fit("other", Ask(10241), ["N"], 0.0).nodes == ()


def test_issue_26_of_the_plugin_concurrent_creation_fails() -> None:
    """Pods of one size that start together take each other's device there."""
    cache = ledger_of(inventory("N", 4000, 4000, 4000))
    chosen = {uid: take(cache, uid, Ask(4000), "N") for uid in "abc"}
    assert {uid: each.uuids for uid, each in chosen.items()} == {
        "a": ("GPU-N-0",),
        "b": ("GPU-N-1",),
        "c": ("GPU-N-2",),
    }


def test_issue_187_the_last_pod_waits_because_the_release_follows_the_retry() -> None:
    """Room is there as soon as the API says that a pod is gone, and a failed bind's at once: no timer is in between."""
    cache = ledger_of(inventory("N", 8000))
    cache.update_pod(bound("leaving", "N", 8000, 0, terminating=True))
    assert cache.fit("waiting", Ask(8000), ["N"], 0.0).nodes == ()
    cache.remove_pod("leaving")
    assert cache.fit("waiting", Ask(8000), ["N"], 0.0).nodes == ("N",)
    take(cache, "waiting", Ask(8000), "N")
    cache.forget("waiting")
    assert cache.fit("waiting", Ask(8000), ["N"], 0.0).nodes == ("N",)


def test_issue_188_pods_wait_beside_free_memory() -> None:
    """Free memory that is used by nobody whom the API knows is found by the audit and offered again."""
    cache = ledger_of(inventory("N", 8000))
    take(cache, "vanished", Ask(8000), "N")
    cache.finish_binding("vanished", 1.0)
    cache.compare([], since=2.0)
    assert cache.fit("waiting", Ask(8000), ["N"], 2.0).nodes == ("N",)
