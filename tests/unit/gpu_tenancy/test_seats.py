"""Tests the components Seat and SeatedDeployment."""

from typing import Any

import pulumi
import pytest

from gpu_tenancy import Seat, SeatedDeployment
from gpu_tenancy.arguments import ArgumentError
from gpu_tenancy.seat import override_with_stanza
from stacks import platform, settings
from tests.support.engine import Graph, build
from tests.support.prod import put, raw

GPUMEM = "viktorbarzin.me/gpumem"
# NVIDIA's GPU operator recognizes a GPU pod by its request of nvidia.com/gpu.
BUDGET = {GPUMEM: "3k", "nvidia.com/gpu": "0"}
IMAGE = "docker.io/library/busybox:1.37.0"


def residents(*changes: Any) -> dict[str, Any]:
    config = raw()
    for change in changes:
        change(config)
    parsed = settings.parse(config)
    return platform.pod_stanzas(parsed, parsed.ledger())


PROD = residents()


def deployed(name: str = "immich-ml", **given: Any) -> dict[str, Any]:
    graph = build(lambda: SeatedDeployment(name, **{"residents": PROD, "image": IMAGE, **given}))
    (found,) = graph.objects()
    return dict(found)


def refused(kind: type[Seat | SeatedDeployment], **given: Any) -> list[str]:
    with pytest.raises(ArgumentError) as error:
        build(lambda: kind("immich-ml", **given))
    first, *lines = str(error.value).splitlines()
    assert first == f"{kind.__name__} immich-ml is refused:"
    return [line.removeprefix("  ") for line in lines]


def test_the_pods_of_a_seat_of_several_devices_ask_for_the_sum_and_the_number() -> None:
    of = residents(put("pools t4 device_count", 2), put("residents immich-ml devices_per_pod", 2))
    (container,) = deployed(residents=of)["spec"]["template"]["spec"]["containers"]
    limits = {GPUMEM: "6k", "viktorbarzin.me/gpu-count": "2", "nvidia.com/gpu": "0"}
    assert container["resources"] == {"limits": limits, "requests": limits}


def test_name_image_and_residents_are_all_that_a_deployment_needs() -> None:
    labels = {"app.kubernetes.io/name": "immich-ml"}
    assert deployed() == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "immich-ml",
            "namespace": "immich",
            "labels": labels,
            "annotations": {
                "gpu-tenancy/stack": "gpu-tenancy/test",
                "pulumi.com/patchFieldManager": "gpu-tenancy/test",
            },
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "Recreate"},
            "template": {
                "metadata": {"labels": labels | {"viktorbarzin.me/seat": "immich-ml"}},
                "spec": {
                    "nodeSelector": PROD["immich-ml"]["nodeSelector"],
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                    "priorityClassName": "gpu-workload",
                    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [
                        {
                            "name": "main",
                            "image": IMAGE,
                            "resources": {"limits": BUDGET, "requests": BUDGET},
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "capabilities": {"drop": ["ALL"]},
                            },
                        }
                    ],
                },
            },
        },
    }


def test_what_is_given_of_container_and_pod_stays_next_to_the_seat() -> None:
    spec = deployed(
        env={"MODEL": "small"},
        container={
            "command": ["serve"],
            "env": [{"name": "PORT", "value": "80"}],
            "resources": {"requests": {"cpu": "1"}},
            "securityContext": {"readOnlyRootFilesystem": True},
        },
        pod={"securityContext": {"runAsUser": 1000}, "tolerations": [{"key": "team", "operator": "Exists"}]},
    )["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["env"] == [{"name": "PORT", "value": "80"}, {"name": "MODEL", "value": "small"}]
    assert container["resources"] == {"limits": BUDGET, "requests": {"cpu": "1", **BUDGET}}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert [each["key"] for each in spec["tolerations"]] == ["team", "nvidia.com/gpu"]


def test_a_rollout_of_a_seat_with_several_pods_replaces_one_pod_after_the_other() -> None:
    several = residents(put("residents immich-ml replicas", 2), put("residents immich-ml gpumem_mib", 1500))
    spec = deployed(residents=several)["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    assert deployed(residents=several, replicas=1.0)["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"residents": PROD}, ["image: is missing; add it"]),
        ({"image": IMAGE}, ["platform: is missing; give platform or residents"]),
        (
            {"image": IMAGE, "platform": "a/b/c", "residents": PROD},
            ["platform, residents: are both given; remove one"],
        ),
        (
            {"image": IMAGE, "residents": PROD, "replicas": -1},
            ["replicas: must be a whole number of 0 or more, known before the program runs (got -1)"],
        ),
        (
            {"image": IMAGE, "residents": PROD, "resident": "imich-ml"},
            ["resident: 'imich-ml' is none of the platform's residents; did you mean immich-ml?"],
        ),
        (
            {
                "image": IMAGE,
                "residents": PROD,
                "pod": {"nodeSelector": {}, "containers": []},
                "container": {"image": "x", "resources": {"limits": {GPUMEM: "9k", "cpu": "1"}}},
            },
            [
                "pod.nodeSelector: is the seat's; remove it",
                f"container.resources.limits.{GPUMEM}: is the seat's; remove it",
                "pod.containers: is set by image and container; remove it",
                "container.image: is set by image and container; remove it",
            ],
        ),
    ],
)
def test_wrong_arguments_are_refused_all_at_once(given: dict[str, Any], said: list[str]) -> None:
    assert refused(SeatedDeployment, **given) == said


def seat_graph(**given: Any) -> Graph:
    def program() -> None:
        seat = Seat("immich-ml", residents=PROD)
        pulumi.export("pod", seat.pod_spec(given))

    return build(program)


def test_a_seat_says_what_a_pod_of_ones_own_must_carry_and_fills_it_in() -> None:
    graph = seat_graph(containers=[{"name": "a"}, {"name": "beside"}])
    said = graph.outputs_of(graph.one("Seat"))
    stanza = PROD["immich-ml"]
    assert said == {
        "namespace": "immich",
        "labels": {"viktorbarzin.me/seat": "immich-ml"},
        "nodeSelector": stanza["nodeSelector"],
        "tolerations": stanza["tolerations"],
        "priorityClassName": "gpu-workload",
        "resources": stanza["resources"],
        "replicas": 1,
    }
    assert graph.exports["pod"] == override_with_stanza({"containers": [{"name": "a"}, {"name": "beside"}]}, stanza)
    assert "resources" not in graph.exports["pod"]["containers"][1]


def test_a_missing_seat_is_refused_with_the_names_of_the_existing_seats() -> None:
    (line,) = refused(Seat, residents=PROD, resident="zzz")
    assert line.startswith("resident: 'zzz' is none of the platform's residents; known residents: frigate, ")
