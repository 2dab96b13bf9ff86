"""Tests a stack in the mode observe on a real API server. The stack changes no pod. The API server warns about pods
that the mode enforce would refuse.
"""

import pytest

from stacks import platform
from tests.support.e2e.admitted import (
    GPUMEM,
    PLURALS,
    Pod,
    await_policies,
    configuration,
    container,
    create,
    gpu_pod,
    pod,
)
from tests.support.e2e.server import ApiServer
from tests.support.engine import build
from tests.support.prod import put

NO_BUDGET = f"reaches a GPU without a budget: add {GPUMEM}"
DENIED: dict[str, tuple[str, Pod, str]] = {
    "a GPU without a budget": ("immich", gpu_pod(None), NO_BUDGET),
    "a budget that is no seat": ("immich", gpu_pod("1234"), "is as large as a seat"),
    "a namespace that is no tenant's": ("default", gpu_pod("3000"), "no tenant's"),
    "a class of another": ("immich", pod(priorityClassName="tier-2-gpu"), "is only for"),
    "a system class": (
        "immich",
        pod(priorityClassName="system-node-critical"),
        "for what the cluster cannot do without",
    ),
}
ANNOTATED = pod(annotations={"device.viktorbarzin.me/uuid": "GPU-0"})


def apply(server: ApiServer, mode: str) -> None:
    stack = configuration(put("mode", mode))
    for manifest in build(lambda: platform.build(stack)).objects():
        if manifest["kind"] in PLURALS:
            server.apply(manifest, PLURALS[manifest["kind"]])


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> ApiServer:
    apply(server, "observe")
    await_policies(server)
    runtime_class = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
    server.apply({**runtime_class, "handler": "nvidia"}, "runtimeclasses")
    return server


@pytest.mark.parametrize("case", DENIED)
def test_a_pod_that_would_be_denied_is_admitted_with_a_warning_that_has_the_reason(
    cluster: ApiServer, case: str
) -> None:
    namespace, manifest, reason = DENIED[case]
    answer = create(cluster, namespace, manifest)
    assert answer.refusal is None
    assert [warning for warning in answer.warnings if reason in warning]


def test_a_pod_that_keeps_to_everything_is_admitted_without_a_warning_and_unchanged(cluster: ApiServer) -> None:
    answer = create(cluster, "immich", gpu_pod("3000"))
    assert (answer.refusal, answer.warnings) == (None, ())
    spec = answer.body["spec"]
    assert spec["schedulerName"] == "default-scheduler"
    assert {"priorityClassName", "runtimeClassName", "nodeSelector"}.isdisjoint(spec)
    assert "env" not in spec["containers"][0]


def test_a_pod_below_the_level_of_its_namespace_is_admitted_with_a_warning(cluster: ApiServer) -> None:
    answer = create(cluster, "frigate", pod(container(securityContext={"privileged": True})))
    assert answer.refusal is None
    assert any("privileged" in warning for warning in answer.warnings)


def test_the_data_of_the_agents_is_protected_in_the_mode_observe(cluster: ApiServer) -> None:
    assert "are the scheduler's: leave them as they are" in str(create(cluster, "immich", ANNOTATED).refusal)
