"""Tests which rule refuses an additional object in a small program."""

import pytest

from policy.rule import an_object
from tenancy import names
from tests.support import graphs
from tests.support.graphs import SYSTEM, UNKNOWN, Manifest, judge, platform

HPA = {"scaleTargetRef": {"kind": "Deployment", "name": "llama-swap"}, "maxReplicas": 3}
KEDA = {"scaleTargetRef": {"name": "llama-swap"}}
PILE_UP = {"jobTemplate": {"spec": {"template": graphs.pod(2000)}}}
TASKS = {"tasks": [{"template": graphs.pod(1000)}]}


def labelled(kind: str, name: str, labels: dict[str, str]) -> Manifest:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": labels}}


# Each case has an object, the rule that refuses it, and a part of the message.
MORE: list[tuple[Manifest, str, str]] = [
    (
        an_object("v1", "ConfigMapPatch", names.LEDGER, SYSTEM),
        "counted",
        "it changes a ConfigMap that the graph does n",
    ),
    (
        an_object("batch.volcano.sh/v1alpha1", "Job", "x", "immich", spec=TASKS),
        "counted",
        "Job immich/x: cannot be proven",
    ),
    (
        an_object("autoscaling/v2", "HorizontalPodAutoscaler", "x", "llama-swap", spec=HPA),
        "seats",
        "with it 3 pods sit on a seat of 1 x 5000 MiB",
    ),
    (
        an_object("keda.sh/v1alpha1", "ScaledObject", "x", "llama-swap", spec=KEDA),
        "seats",
        "with it 100 pods sit on a seat of 1 x 5000 MiB",
    ),
    (
        an_object("batch/v1", "CronJob", "frigate", "frigate", spec=PILE_UP),
        "seats",
        "cannot be proven: concurrencyPolicy Allow lets runs pile up; write Forbid or Replace",
    ),
    (
        graphs.kueue("Cohort", "extra", spec=graphs.cluster_queue("gpu-any")["spec"]),
        "gpu-quota",
        "Cohort extra: with it queues have 2 nvidia.com/gpu of batch, which has 1",
    ),
    (
        labelled("NamespacePatch", "immich", {names.POD_SECURITY_ENFORCE: "privileged"}),
        "namespaces",
        "pod-security.kubernetes.io/enforce is privileged, tenants.immich is held to baseline; label it baseline",
    ),
    (
        labelled("NamespacePatch", "gpu-operator", {names.EXEMPT: "true"}),
        "namespaces",
        "the label gpu-tenancy/exempt takes it out of admission, and the stack does not list it",
    ),
    (labelled("Namespace", "immich", UNKNOWN), "namespaces", "cannot be proven: metadata.labels is unknown until"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("manifest", "rule", "message"), MORE)
def test_an_object_too_many_breaks_only_its_rule(manifest: Manifest, rule: str, message: str) -> None:
    reported = judge(platform() | {"more": manifest})
    assert graphs.rules_of(reported) == {rule}
    assert any(message in line for line in reported), reported


PASSING = {
    "a stricter level": labelled("Namespace", "immich", {names.POD_SECURITY_ENFORCE: "restricted"}),
    "a tenant that is held to nothing": labelled("Namespace", "android-emulator", {}),
    "what is listed": labelled("Namespace", "nvidia", {names.EXEMPT: "true"}),
    "nobody's namespace": labelled("Namespace", "elsewhere", {}),
    "a kind that runs no pods": an_object("v1", "Service", "x", "immich", spec=UNKNOWN),
    "a pod of the stack's own with the system's class": an_object(
        "v1", "Pod", "x", SYSTEM, spec={"priorityClassName": "system-cluster-critical", "containers": []}
    ),
}


@pytest.mark.parametrize("case", PASSING)
def test_what_changes_no_promise_passes(case: str) -> None:
    assert judge(platform() | {"more": PASSING[case]}) == []


def test_the_findings_of_a_rule_are_counted_after_the_first_fifty() -> None:
    wrong = {f"pod {n}": an_object("v1", "Pod", f"p{n}", "immich", spec=graphs.pod("1.5")["spec"]) for n in range(300)}
    lines = [line for line in judge(platform() | wrong) if line.startswith("seats: ")]
    assert (len(lines), lines[-1]) == (51, "seats: and 250 more")
