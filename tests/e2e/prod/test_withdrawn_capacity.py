"""Replaces the ledger of a running cluster. Reconcile first removes the old capacity from the nodes."""

import pytest

from tenancy import names
from tests.support.e2e.rollout import GPU_COUNT, GPUMEM, SYSTEM, Object, Rollout, changes, container, pods
from tests.support.waiting import becomes

NODE = "k8s-node1"
LEDGER = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.LEDGER}"
DOMAIN = "example.org"
NEW = names.Names(DOMAIN)


@pytest.fixture(scope="module")
def prod(stack: Rollout) -> Rollout:
    stack.go_on(runs=[names.RECONCILE])
    return stack


def ledger(prod: Rollout) -> Object:
    metadata: Object = prod.get(LEDGER)["metadata"]
    return metadata


def keys(prod: Rollout) -> dict[str, str]:
    suffixes = (names.GPUMEM_SUFFIX, names.GPU_COUNT_SUFFIX)
    return {key: amount for key, amount in prod.capacity(NODE).items() if key.endswith(suffixes)}


def test_a_changed_domain_takes_the_old_keys_off_and_advertises_the_new_next_to_a_running_pod(prod: Rollout) -> None:
    before = ledger(prod)
    assert keys(prod) == {GPUMEM: "14k", GPU_COUNT: "14k"}
    spec = {"nodeSelector": {"kubernetes.io/hostname": NODE}, "containers": [container({GPUMEM: "3k"})]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "runs"}, "spec": spec}
    assert prod.create(pods("immich"), pod).refusal is None
    becomes(lambda: prod.get(pods("immich", "runs"))["status"].get("phase"), "Running", "the pod runs")

    prod.workspace.change(lambda config: config["cluster"].update(resource_domain=DOMAIN))
    outcome = prod.up()

    # Pulumi replaces three objects: the ledger, the Job of reconcile, and the configuration of kube-scheduler.
    assert changes(outcome)["replaced"] == 3, outcome.text
    after = ledger(prod)
    assert (after["uid"] != before["uid"], after["finalizers"]) == (True, [NEW.capacity_finalizer])
    assert keys(prod) == {NEW.gpumem: "14k", NEW.gpu_count: "14k"}
    quota = prod.get(f"/api/v1/namespaces/immich/resourcequotas/{names.SEATS}")
    assert quota["spec"]["hard"] == {NEW.requests_gpumem: "4800", NEW.requests_gpu_count: "2"}
    assert "kueue-release" not in outcome.text  # A restart of Kueue could change the order of Jobs.
    assert prod.get(pods("immich", "runs"))["status"]["phase"] == "Running"
    prod.delete(pods("immich", "runs"))
