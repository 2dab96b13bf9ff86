"""Tests that other programs that share or scale GPU workloads are named, and get no tenant, seat or gate."""

from typing import Any

import pytest

from gpumem import survey
from gpumem.init.propose import StackProposal, find_gpus, propose
from tests.support.given_clusters import GPU, Cluster, labelled, of_deployment, pod, scaled


def proposed(*pods: dict[str, Any], replicas: int = 1, **more: Any) -> StackProposal:
    node = labelled("n", "Tesla-T4", 15360, count=2, replicas=replicas)
    found = survey.read(Cluster(nodes=[node], pods=[*pods], **more).api())
    return propose(found, find_gpus(found), {})


def test_the_pods_by_which_a_scheduler_reserves_a_device_are_nobodys_seat() -> None:
    reservation = pod("gpu-reservation-n-abcde", "kai-resource-reservation", on="n", limits={GPU: "1"})
    marked = pod("x", "other", on="n", limits={GPU: "1"}, labels={"app.runai.resource.reservation": "runai"})
    proposal = proposed(reservation, marked)
    assert (proposal.tenants, proposal.seats) == ((), ())
    assert "KAI-Scheduler hands out the same cards" in proposal.misfits[0]


@pytest.mark.parametrize(
    ("name", "given", "asked"),
    [
        ("KAI-Scheduler", {"annotations": {"gpu-memory": "8192"}, "schedulerName": "kai-scheduler"}, "8192 MiB"),
        ("Run:ai", {"annotations": {"gpu-fraction": "0.5"}, "schedulerName": "runai-scheduler"}, "a part of a card"),
        ("Volcano", {"limits": {"volcano.sh/vgpu-memory": "6000"}, "runtimeClassName": "nvidia"}, "6000 MiB"),
        ("gpushare", {"limits": {"aliyun.com/gpu-mem": "4"}}, "4096 MiB"),
        ("vcuda (GPU Manager)", {"limits": {"tencent.com/vcuda-memory": "8"}}, "2048 MiB"),
        ("AWS' virtual GPU plugin", {"limits": {"k8s.amazonaws.com/vgpu": "1"}}, "a part of a card"),
        ("the device plugin of doslab.io", {"limits": {"doslab.io/gpu-memory": "10"}}, "a part of a card"),
    ],
)
def test_a_part_of_a_card_from_another_program_is_named_and_no_seat(
    name: str, given: dict[str, Any], asked: str
) -> None:
    proposal = proposed(*of_deployment("chat", "chat", on="n", **given))
    assert (proposal.tenants, proposal.seats) == ((), ())
    assert any(line.startswith(f"{name} hands out the same cards") for line in proposal.misfits)
    assert any(f"Deployment chat/chat has no seat: {name} gives it {asked}" in line for line in proposal.misfits)


def test_the_memory_that_hami_gives_is_the_budget_and_hami_is_named() -> None:
    by_mib = of_deployment("a", "a", on="n", limits={GPU: "1", "nvidia.com/gpumem": "3000"})
    by_part = of_deployment("b", "b", on="n", limits={GPU: "1", "nvidia.com/gpumem-percentage": "50"})
    proposal = proposed(*by_mib, *by_part)
    assert {seat.name: seat.gpumem_mib.value for seat in proposal.seats} == {"a": 3000, "b": 7680}
    assert "HAMi hands out the same cards" in proposal.misfits[0]


def test_the_parts_of_a_sharing_program_are_no_tenants() -> None:
    plugin = pod("vgpu", "hami-system", on="n", owner=("DaemonSet", "hami-device-plugin"), runtimeClassName="nvidia")
    plugin["spec"]["containers"][0]["image"] = "docker.io/projecthami/hami:v2.6.1"
    assert proposed(plugin).tenants == ()


def test_another_scheduler_of_gpu_pods_is_named() -> None:
    proposal = proposed(*of_deployment("a", "a", on="n", limits={GPU: "1"}, schedulerName="tetris"))
    assert "the scheduler tetris hands out the same cards (Deployment a/a)" in proposal.misfits[0]
    assert len(proposal.seats) == 1


def test_a_device_that_a_pod_reaches_without_a_request_is_nobodys_whole_card() -> None:
    claims = of_deployment("whisper", "ai", on="n", limits={GPU: "1"})
    reaches = of_deployment("ollama", "ai", on="n", runtimeClassName="nvidia")
    assert {seat.gpumem_mib.value for seat in proposed(*claims).seats} == {14000}
    both = proposed(*claims, *reaches).seats
    assert [seat.gpumem_mib.is_assumed for seat in both] == [True, True]


@pytest.mark.parametrize(
    "marks",
    [
        {"labels": {"serving.knative.dev/revision": "m-1", "pod-template-hash": "6c9f8d7b54"}},
        {"labels": {"serving.kserve.io/inferenceservice": "m", "pod-template-hash": "6c9f8d7b54"}},
        {"annotations": {"scaledobject.keda.sh/name": "m"}},
    ],
)
def test_a_workload_that_scales_itself_gets_no_gate(marks: dict[str, Any]) -> None:
    running = proposed(*of_deployment("m", "m", on="n", limits={GPU: "1"}, **marks))
    assert any("is scaled by" in line and "declare no gate" in line for line in running.misfits)
    idle = scaled(["m"])
    idle[0]["spec"]["template"]["metadata"] = marks
    (line,) = proposed(deployments=idle).misfits
    assert "gate under on_demand" not in line


def test_a_workload_with_an_autoscaler_gets_no_gate() -> None:
    target = {"kind": "Deployment", "name": "m"}
    scaler = {"metadata": {"name": "keda-hpa-m", "namespace": "m"}, "spec": {"scaleTargetRef": target}}
    (line,) = proposed(deployments=scaled(["m"]), autoscalers=[scaler]).misfits
    assert line.endswith(
        "HorizontalPodAutoscaler keda-hpa-m scales it, so give it one under residents, and no gate, which would be a "
        "second owner"
    )
