"""Tests the owner, the start and the end of each recorded pod."""

from simulation.history import GRAIN_MIB, Owner, PodLife, lives_by_replica, owner_of, recorded_pods
from simulation.replay import gates_of, owners_of
from tenancy.pod_history import PodHistory
from tests.support.histories import pod, today

KNOWN = [
    Owner(name="immich", namespace="immich", pool="t4", declared_mib=100),
    Owner(name="immich-ml", namespace="immich", pool="t4", declared_mib=3000),
    Owner(name="frigate", namespace="frigate", pool="t4", declared_mib=2000),
]


def of(namespace: str, name: str) -> str | None:
    found = owner_of(PodHistory(namespace, name, "0", ()), KNOWN)
    return found and found.name


def test_a_pod_is_the_workloads_whose_name_it_begins_with_else_the_only_ones_of_its_namespace() -> None:
    assert of("immich", "immich-ml-5d-x") == "immich-ml"
    assert of("immich", "immich-5d-x") == "immich"
    assert of("immich", "immich") == "immich"
    assert of("immich", "immichml") is None
    assert of("frigate", "anything") == "frigate"
    assert of("elsewhere", "frigate-0") is None


def test_a_pod_that_begins_after_another_has_ended_is_that_replicas_next() -> None:
    first, second, beside = (PodLife(begin, end, ((0, 1),)) for begin, end in ((0, 10), (12, 20), (5, 30)))
    assert lives_by_replica([second, beside, first]) == [[first, second], [beside]]


def test_a_change_of_less_than_a_grain_is_left_out_and_growth_is_not() -> None:
    slow = pod("frigate", lambda age: 1000 + age // 5)
    rows = recorded_pods([slow], today().ledger, gates_of(today())).lives["frigate"]
    levels = [mib for _, mib in rows[0][0].steps]
    assert levels == list(range(1000, 1000 + 120 + 1, GRAIN_MIB))


def test_a_pod_on_several_devices_is_nobodys_and_so_said() -> None:
    pods = [pod("frigate", 1000, gpu="GPU-0"), pod("frigate", 1000, gpu="GPU-1"), pod("immich-ml", 1, gpu="GPU-0")]
    found = recorded_pods(pods, today().ledger, gates_of(today()))
    assert found.lives["frigate"] == []
    assert found.notes[0].endswith("frigate/frigate-5d4f8b7c9-00001")
    assert found.outside["t4", 0][0][1] == 1000


def test_the_owners_of_a_stack_are_its_seats_and_what_is_behind_its_gates() -> None:
    assert {owner.name for owner in owners_of(today())} >= {"immich-ml", "frigate", "tts", "ytdlp"}
