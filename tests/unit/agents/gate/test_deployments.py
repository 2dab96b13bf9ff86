"""Tests how the gate reads Deployments and their autoscalers."""

from dataclasses import replace
from typing import Any

import pytest

from agents.gate import deployments
from tests.support.fake_cluster import Served
from tests.support.gating import TTS, add_deployment, add_running_pod, owner


def read(served: Served) -> deployments.Deployment:
    found = deployments.read(served.api(), "voice", "tts")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        ([], None),
        ([owner("helm", "f:template")], None),
        ([owner("helm"), owner("kubelet", "f:template")], "helm"),
        ([owner("kubectl")], "kubectl"),
        ([{"manager": "stripped"}, owner("kubectl")], "kubectl"),
    ],
)
def test_who_owns_the_replicas_is_told_by_the_managed_fields(
    served: Served, owners: list[dict[str, Any]], expected: str | None
) -> None:
    add_deployment(served.cluster, owners=owners)
    assert read(served).scaled_by == expected


def test_its_pods_are_those_that_its_selector_selects(served: Served) -> None:
    expressions = [
        {"key": "tier", "operator": "In", "values": ["a", "b"]},
        {"key": "env", "operator": "NotIn", "values": ["dev"]},
        {"key": "gpu", "operator": "Exists"},
        {"key": "debug", "operator": "DoesNotExist"},
    ]
    add_deployment(served.cluster, selector={"matchLabels": {"app": "tts"}, "matchExpressions": expressions})
    assert read(served).pods == "app=tts,tier in (a,b),env notin (dev),gpu,!debug"


def test_its_pods_are_read_with_its_selector_and_where_they_are(served: Served) -> None:
    add_deployment(served.cluster)
    add_running_pod(served.cluster)
    add_running_pod(served.cluster, uid="unbound", node="")
    add_running_pod(served.cluster, replace(TTS, deployment="other"))
    assert deployments.read_pods(served.api(), read(served)) == {
        "uid-tts-pod": "k8s-node1",
        "unbound": None,
    }


def target(scaler: str, **reference: str) -> dict[str, Any]:
    return {"metadata": {"name": scaler}, "spec": {"scaleTargetRef": reference}}


def listed(*items: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {}, "items": list(items)}


def test_autoscalers_are_those_of_kubernetes_and_of_keda(served: Served) -> None:
    served.cluster.objects |= {
        "/apis/autoscaling/v2/namespaces/voice/horizontalpodautoscalers": listed(
            target("by-cpu", kind="Deployment", name="tts"), target("sets", kind="StatefulSet", name="books")
        ),
        "/apis/keda.sh/v1alpha1/namespaces/voice/scaledobjects": listed(target("by-queue", name="video")),
    }
    assert deployments.read_scalers(served.api(), "voice") == {
        "tts": "HorizontalPodAutoscaler by-cpu",
        "video": "ScaledObject by-queue",
    }
