"""Alerts on Kueue and its queues. The alerts use the metrics of Kueue, kube-state-metrics and the API server."""

from collections.abc import Iterator

from components.monitoring.alert import Alert
from components.monitoring.args import AlertsArgs
from tenancy.names import GPU

_STOPPED_HOLD = "15m"
# The names of Kueue's webhooks. Other programs with the same framework have webhooks with similar names.
_WEBHOOKS = (
    "[mv](job|jobset|pod|deployment|statefulset|leaderworkerset|rayjob|raycluster|trainjob|mpijob|workload).kb.io"
)
_FAILED = "apiserver_admission_webhook_rejection_count"


def rules(args: AlertsArgs) -> Iterator[Alert]:
    if args.kueue_namespace is None:
        return
    minutes = args.spec.queue_wait_minutes
    yield _down(args.kueue_namespace, args.kueue_deployment)
    yield _webhook_failing(args.kueue_namespace, args.kueue_deployment)
    yield _stopped()
    if args.ledger.clusters:
        yield _cluster_lost()
    yield _waits(minutes)
    yield _starves(minutes)


def _down(namespace: str, deployment: str) -> Alert:
    """Watches Kueue's own Deployment, because its namespace may have other controllers, and a Deployment that was
    deleted has no series.
    """
    available = "kube_deployment_status_replicas_available"
    ready = f'{available}{{namespace="{namespace}", deployment="{deployment}"}}'
    other = f'{available}{{namespace="{namespace}", deployment="other-controller-manager"}}'
    return Alert(
        "GpuKueueDown",
        f"(max({ready}) or 0 * count({available})) == 0",
        hold="5m",
        severity="critical",
        summary="No pod of Kueue is available",
        description=(
            "Jobs of queue tenants do not start. The API server refuses new Jobs in their namespaces, because "
            f"Kueue's webhooks do not respond. Running Jobs continue. Check: kubectl -n {namespace} get "
            f"deployment/{deployment},pods, and its logs."
        ),
        fires={ready: "1x5 0x5 _x20", other: "1x30"},
        silent={ready: "1x12 0 0 1x16", other: "0x30"},
    )


def _webhook_failing(namespace: str, deployment: str) -> Alert:
    failed = f'{_FAILED}{{error_type="calling_webhook_error", name=~"{_WEBHOOKS}"}}'
    example = f'{_FAILED}{{error_type="calling_webhook_error", name="mjob.kb.io"}}'
    return Alert(
        "GpuKueueWebhookFailing",
        f"sum by (name) (increase({failed}[10m])) > 0",
        hold="2m",
        severity="critical",
        summary="The API server cannot call Kueue's webhook {{ $labels.name }}",
        description=(
            "In this time the API server refuses new Jobs of queue tenants. Possible causes: a wrong certificate, a "
            f"NetworkPolicy, or an overloaded Kueue. Check: kubectl -n {namespace} logs "
            f"deployment/{deployment}."
        ),
        fires={example: "0+1x30"},
        silent={example: "7x30"},
    )


def _stopped() -> Alert:
    return Alert(
        "GpuQueueStopped",
        'max by (cluster_queue) (kueue_cluster_queue_status{status="active"}) == 0',
        hold=_STOPPED_HOLD,
        severity="warning",
        summary="ClusterQueue {{ $labels.cluster_queue }} admits no Job",
        description=(
            "The ClusterQueue has a stop_policy, or names a flavor, a topology or an admission check that does not "
            "exist. Or Kueue reaches none of its worker clusters. Its condition Active states the reason: kubectl "
            "describe clusterqueue {{ $labels.cluster_queue }}."
        ),
        fires={'kueue_cluster_queue_status{status="active"}': "0x30"},
        silent={'kueue_cluster_queue_status{status="active"}': "0x10 1x20"},
    )


def _cluster_lost() -> Alert:
    """Reads the retries of connections, because Kueue has no metric for the condition Active of a MultiKueueCluster.

    Kueue retries a lost connection at least every 320 seconds (retryAfter in multikueuecluster.go). Kueue retries an
    unusable kubeconfig at least every 1000 seconds. Therefore the alert ends after some minutes if the kubeconfig is
    wrong.
    """
    retries = 'controller_runtime_reconcile_total{controller="multikueue_cluster", result=~"error|requeue_after"}'
    example = 'controller_runtime_reconcile_total{controller="multikueue_cluster", result="requeue_after"}'
    return Alert(
        "GpuWorkerClusterLost",
        f"sum(increase({retries}[6m])) > 0",
        hold="10m",
        severity="warning",
        summary="Kueue cannot reach a worker cluster",
        description=(
            "Jobs of the ClusterQueues that dispatch to this worker cluster wait, or run in other worker clusters. "
            "After worker_lost_timeout, Kueue evicts the Jobs that run in the lost cluster. The condition Active of "
            "the MultiKueueCluster has the reason: kubectl describe multikueueclusters."
        ),
        fires={example: "0+1x30"},
        silent={example: "0 1x29"},
    )


def _waits(minutes: int) -> Alert:
    """Compares the GPUs of all waiting Jobs with the idle quota. Therefore the alert does not fire if the idle quota is
    enough for only some of the Jobs."""
    pending = f'max by (cluster_queue) (kueue_cluster_queue_resource_pending{{resource="{GPU}"}})'
    return Alert(
        "GpuQueueWaits",
        f"{pending} > 0 and {_own_room()} >= {pending} and {_cohort_room()} >= {pending}",
        hold=f"{minutes}m",
        severity="warning",
        summary="Jobs for {{ $value }} GPUs wait in ClusterQueue {{ $labels.cluster_queue }}, which has enough idle "
        "quota",
        description=(
            f"They have waited for {minutes} minutes, although the ClusterQueue may hand out enough GPUs. The "
            "condition QuotaReserved of their Workloads states the reason: kubectl get workloads -A, and kubectl "
            "gpumem why."
        ),
        fires={f'kueue_cluster_queue_resource_pending{{resource="{GPU}"}}': "1x30"},
        silent={
            f'kueue_cluster_queue_resource_pending{{resource="{GPU}"}}': "1x30",
            f'kueue_cluster_queue_resource_reservation{{resource="{GPU}"}}': "2x30",
        },
    )


def _own_room() -> str:
    parts = [_of_queue(each) for each in ("nominal_quota", "borrowing_limit", "resource_reservation")]
    return f"(sum by (cluster_queue) ({parts[0]} + {parts[1]} - {parts[2]}))"


def _cohort_room() -> str:
    """Returns PromQL: the idle GPUs of each ClusterQueue's cohort. A ClusterQueue without a cohort counts as a
    cohort."""
    joined, alone = (_idle(chosen) for chosen in ('cohort!=""', 'cohort=""'))
    idle = f'({joined} or label_replace({alone}, "cohort", "$1/", "cluster_queue", "(.*)"))'
    queues = f"group by (cluster_queue, cohort) ({idle})"
    return f"(max by (cluster_queue) ({queues} * on (cohort) group_left () sum by (cohort) ({idle})))"


def _idle(chosen: str) -> str:
    return f"({_of_queue('nominal_quota', chosen)} - {_of_queue('resource_reservation', chosen)})"


def _of_queue(metric: str, chosen: str = "") -> str:
    """Returns PromQL: the metric by flavor. Several replicas of Kueue count once."""
    labels = ", ".join(filter(None, (f'resource="{GPU}"', chosen)))
    return f"max by (cluster_queue, cohort, flavor) (kueue_cluster_queue_{metric}{{{labels}}})"


def _starves(minutes: int) -> Alert:
    waits = "max by (namespace, name) (kueue_local_queue_pending_workloads) > 0"
    runs = "max by (namespace, name) (kueue_local_queue_admitted_active_workloads) > 0"
    window = f"{2 * minutes}m"
    others = f"sum(increase(kueue_admitted_workloads_total[{window}])) > 0"
    return Alert(
        "GpuQueueStarves",
        f"({waits} unless {runs}) and on () ({others})",
        hold=f"{minutes}m",
        severity="warning",
        summary="No Job of LocalQueue {{ $labels.namespace }}/{{ $labels.name }} is admitted, while Jobs of other "
        "LocalQueues are admitted",
        description=(
            f"{{{{ $value }}}} Workloads of this LocalQueue have waited for {minutes} minutes, and none runs. "
            "Meanwhile, Kueue admits Workloads of other LocalQueues. Give the teams weights, an admission_scope, or "
            "a ClusterQueue each: kubectl gpumem who."
        ),
        fires={
            "kueue_local_queue_pending_workloads": "3x30",
            "kueue_local_queue_admitted_active_workloads": "0x30",
            "kueue_admitted_workloads_total": "0+1x30",
        },
        silent={
            "kueue_local_queue_pending_workloads": "3x30",
            "kueue_local_queue_admitted_active_workloads": "1x30",
            "kueue_admitted_workloads_total": "0+1x30",
        },
    )
