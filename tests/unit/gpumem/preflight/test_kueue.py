"""Tests preflight's report on the cluster's Kueue, for a stack with queues."""

from dataclasses import replace
from typing import Any

import pytest

from gpumem import survey
from gpumem.preflight.declared import Declared, InstalledKueue
from gpumem.preflight.kueue import kueue_parts
from gpumem.preflight.part import Part, State
from tests.support.before_rollout import DECLARED, LEDGER, budgeted
from tests.support.given_clusters import Cluster, of_deployment

TENANT, HOME = "team-a", "queueing"
ACCOUNT = "kueue-controller-manager"
QUEUED = replace(
    DECLARED,
    ledger=replace(LEDGER, queue_tenants=(TENANT,)),
    has_queues=True,
    installed_kueue=InstalledKueue(namespace=HOME, service_account=ACCOUNT),
    namespace_labels={TENANT: {"kueue-managed": "true"}},
)
ONLY_LABELLED = {"matchLabels": {"kueue-managed": "true"}}
NAME = "kubernetes.io/metadata.name"
DEFAULT = {"matchExpressions": [{"key": NAME, "operator": "NotIn", "values": ["kube-system", HOME]}]}


def with_kueue(version: str = "0.19.2", account: str = ACCOUNT, selector: dict[str, Any] | None = None) -> Cluster:
    cluster = budgeted()
    cluster.groups = {"kueue.x-k8s.io": ("v1beta2", "v1beta1")}
    cluster.pods += of_deployment(ACCOUNT, HOME, serviceAccountName=account)
    cluster.pods[-1]["spec"]["containers"][0]["image"] = f"registry.k8s.io/kueue/kueue:v{version}"
    jobs = {
        "name": "mjob.kb.io",
        "clientConfig": {"service": {"namespace": HOME, "name": "kueue-webhook-service"}},
        "namespaceSelector": selector or ONLY_LABELLED,
        "rules": [{"apiGroups": ["batch"], "resources": ["jobs"]}],
    }
    deployments = {**jobs, "rules": [{"apiGroups": ["apps"], "resources": ["deployments"]}], "namespaceSelector": {}}
    cluster.mutating_webhooks = [{"metadata": {"name": "kueue"}, "webhooks": [jobs, deployments]}]
    return cluster


def found(cluster: Cluster, declared: Declared = QUEUED) -> list[Part]:
    return [*kueue_parts(survey.read(cluster.api()), declared)]


def test_a_kueue_that_manages_the_queue_tenants_alone_is_no_problem() -> None:
    assert found(with_kueue()) == []


def test_a_stack_without_queues_needs_no_kueue() -> None:
    assert found(budgeted(), DECLARED) == []


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("registry.redhat.io/kueue/kueue-rhel9@sha256:aa", None),
        ("harbor.example.com/mirror/registry-k8s-io-kueue-kueue:v0.10.0", "0.10.0"),
        ("harbor.example.com/renamed@sha256:bb", None),
    ],
)
@pytest.mark.parametrize("by", ["label", "service"])
def test_a_renamed_image_hides_neither_the_account_nor_that_the_version_is_unknown(
    image: str, version: str | None, by: str
) -> None:
    cluster = with_kueue(account="another")
    controller = cluster.pods[-1]
    controller["spec"]["containers"][0]["image"] = image
    if by == "label":
        controller["metadata"]["labels"] |= {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
    else:
        controller["metadata"]["labels"]["tier"] = "queue"
        metadata = {"name": "kueue-webhook-service", "namespace": HOME}
        cluster.services = [{"metadata": metadata, "spec": {"selector": {"tier": "queue"}}}]
    state, account = found(cluster)
    assert account.text.startswith(f"its controller runs in {HOME} as another")
    assert state.text.startswith(f"{version} has quotas" if version else "the image of queueing/kueue-controller")
    assert state.state == (State.OTHER if version else State.UNKNOWN)


def test_a_kueue_without_a_controller_in_sight_is_not_known() -> None:
    cluster = with_kueue()
    cluster.pods.pop()
    (part,) = found(cluster)
    assert (part.state, part.blocks) == (State.UNKNOWN, False)


def test_without_kueue_queues_are_in_the_way() -> None:
    (part,) = found(budgeted())
    assert (part.state, part.blocks) == (State.MISSING, True)
    assert part.text == "queues needs it; declare kueue, or install it"


def test_an_older_kueue_serves_another_version() -> None:
    cluster = with_kueue("0.14.3")
    cluster.groups = {"kueue.x-k8s.io": ("v1beta1",)}
    api, quotas = found(cluster)
    assert (api.state, api.blocks) == (State.OTHER, True)
    assert "the cluster serves v1beta1; upgrade it to 0.18.6, 0.19.2 or later" in api.text
    assert (quotas.state, quotas.blocks) == (State.OTHER, False)


@pytest.mark.parametrize(
    ("version", "hold"), [("0.18.5", False), ("0.18.6", True), ("0.19.1", False), ("0.20.0", True)]
)
def test_quotas_that_can_be_bypassed_are_reported_and_block_nothing(version: str, hold: bool) -> None:
    assert [part.blocks for part in found(with_kueue(version))] == ([] if hold else [False])


def test_another_account_could_not_start_a_job() -> None:
    (part,) = found(with_kueue(account="queueing-controller-manager"))
    assert part.blocks
    assert part.text.startswith(f"its controller runs in {HOME} as queueing-controller-manager, and only {ACCOUNT} of")


def test_jobs_of_a_namespace_that_kueue_does_not_manage_would_not_queue() -> None:
    (part,) = found(with_kueue(), replace(QUEUED, namespace_labels={}))
    assert (part.state, part.blocks) == (State.MISSING, True)
    assert part.text.startswith(
        f"no webhook of namespace {HOME} judges Jobs in {TENANT}, so their Jobs would not queue"
    )


def test_a_label_that_is_there_already_counts() -> None:
    cluster = with_kueue()
    cluster.namespaces[TENANT] = {"kueue-managed": "true"}
    assert found(cluster, replace(QUEUED, namespace_labels={})) == []


def test_agents_that_stop_with_kueue_are_named() -> None:
    (part,) = found(with_kueue(selector=DEFAULT))
    assert not part.blocks
    assert part.text.startswith("its webhook judges the Jobs of gpu-tenancy-system, gpu-tenancy-system-nodes, so")


@pytest.mark.parametrize(
    ("operator", "values", "selected"),
    [
        ("In", [TENANT], True),
        ("In", ["team-b"], False),
        ("NotIn", [TENANT], False),
        ("Exists", None, True),
        ("DoesNotExist", None, False),
    ],
)
def test_selectors_are_read_as_kubernetes_reads_them(operator: str, values: list[str] | None, selected: bool) -> None:
    expression = {"key": NAME, "operator": operator, **({"values": values} if values else {})}
    parts = found(with_kueue(selector={"matchExpressions": [expression]}))
    assert ("judges Jobs in" not in "".join(part.text for part in parts)) is selected


def test_a_kueue_of_the_stack_of_another_version_blocks() -> None:
    ours = replace(QUEUED, installed_kueue=None, kueue_version="0.19.2")
    assert found(with_kueue(), ours) == []
    (part,) = found(with_kueue("0.18.6"), ours)
    assert (part.state, part.blocks) == (State.OTHER, True)


def test_webhooks_that_may_not_be_read_are_a_gap_and_no_finding() -> None:
    api = with_kueue().api()
    api.refused.add(survey.MUTATING_WEBHOOKS)
    read = survey.read(api)
    assert [gap.partition(":")[0] for gap in read.gaps] == ["mutatingwebhookconfigurations are not known"]
    assert [*kueue_parts(read, QUEUED)] == []
