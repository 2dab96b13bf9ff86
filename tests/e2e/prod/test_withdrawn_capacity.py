"""The ledger is replaced on a live cluster: reconcile takes the old keys off the nodes before anything follows."""

from tenancy import names
from tests.e2e.rollout import GPU_COUNT, GPUMEM, SYSTEM, Object, Rollout, becomes, changes, container, pods
from tests.integration.preview.mistakes import Config

NODE = "k8s-node1"
LEDGER = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.LEDGER}"
DOMAIN = "example.org"
NEW = names.Names(DOMAIN)


def ledger(prod: Rollout) -> Object:
    metadata: Object = prod.get(LEDGER)["metadata"]
    return metadata


def keys(prod: Rollout) -> dict[str, str]:
    """What the node advertises of ours, under whichever domain."""
    suffixes = (names.GPUMEM_SUFFIX, names.GPU_COUNT_SUFFIX)
    return {key: amount for key, amount in prod.capacity(NODE).items() if key.endswith(suffixes)}


def test_a_changed_domain_takes_the_old_keys_off_and_advertises_the_new_beside_a_running_pod(prod: Rollout) -> None:
    before = ledger(prod)
    assert keys(prod) == {GPUMEM: "14k", GPU_COUNT: "1"}
    spec = {"nodeSelector": {"kubernetes.io/hostname": NODE}, "containers": [container({GPUMEM: "3k"})]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "runs"}, "spec": spec}
    assert prod.create(pods("immich"), pod).refusal is None
    becomes(lambda: prod.get(pods("immich", "runs"))["status"].get("phase"), "Running", "the pod runs")

    prod.workspace.change(lambda config: config["cluster"].update(resource_domain=DOMAIN))
    outcome = prod.up()

    # The ledger, the Job that advertises it, and kube-scheduler's file, which is named by its content.
    assert changes(outcome)["replaced"] == 3, outcome.text
    after = ledger(prod)
    assert (after["uid"] != before["uid"], after["finalizers"]) == (True, [NEW.capacity_finalizer])
    assert keys(prod) == {NEW.gpumem: "14k", NEW.gpu_count: "1"}
    quota = prod.get(f"/api/v1/namespaces/immich/resourcequotas/{names.SEATS}")
    assert quota["spec"]["hard"] == {NEW.requests_gpumem: "4800", NEW.requests_gpu_count: "2"}
    assert "kueue-release" not in outcome.text  # restarted, it would let Jobs start out of turn
    assert prod.get(pods("immich", "runs"))["status"]["phase"] == "Running"
    prod.delete(pods("immich", "runs"))
    prod.expect_no_changes()


def test_without_reconcile_the_ledger_stays_and_nothing_is_advertised(prod: Rollout) -> None:
    """The residents and the scheduler go with it: nobody would advertise what they ask for, and it places."""

    def leave_out(config: Config) -> None:
        for key in ("reconcile", "residents", "scheduler"):
            del config[key]

    before = ledger(prod)
    prod.workspace.change(leave_out)
    prod.up()
    after = ledger(prod)
    assert (after["uid"] != before["uid"], "finalizers" in after) == (True, False)
    assert keys(prod) == {}
    assert names.RECONCILE not in {
        item["metadata"]["name"] for item in prod.items(f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs")
    }
    prod.expect_no_changes()
