"""Alerts for four faults of the guard. The guard is missing, cannot change a pod, cannot see a pod, or gets no events
from the API server."""

from collections.abc import Iterator

from components.monitoring.alert import Alert
from components.monitoring.args import AlertsArgs
from tenancy import names

# The API server sends a bookmark at least each minute, and each watch ends after five minutes.
STALE_SECONDS = 600
_RUNS = 'kube_pod_status_phase{namespace="inference", pod="llm-x", phase="Running"}'


def rules(args: AlertsArgs) -> Iterator[Alert]:
    daemon_sets, namespace = args.guards, names.node_agent_namespace(args.cluster.system_namespace)
    if not daemon_sets:
        return
    listed = "|".join(daemon_sets)
    wanted = f'kube_daemonset_status_desired_number_scheduled{{namespace="{namespace}", daemonset=~"{listed}"}}'
    guards = f"(count(count by (node, instance) ({names.METRIC_GUARD_API_AGE})) or vector(0))"
    yield Alert(
        "MemoryGuardMissing",
        f"(sum(max by (daemonset) ({wanted})) or vector({len(daemon_sets)})) > {guards}",
        hold="2m",
        severity="critical",
        summary="{{ $value }} nodes should run a guard, but fewer do",
        description=(
            "A process that starts on a node without a guard keeps the kubelet's oom_score_adj. When host memory "
            "runs out, the kernel may kill this process before any disposable pod. Read the pods of "
            f"{', '.join(daemon_sets)} in {namespace}, and their logs."
        ),
        fires={names.METRIC_GUARD_API_AGE: "_x30"},
        silent={names.METRIC_GUARD_API_AGE: "30x13 stale 30x16"},
    )
    yield Alert(
        "MemoryGuardPowerless",
        f"max by (node, namespace, pod) ({names.METRIC_GUARD_UNHELD}) > 0",
        hold="1m",
        severity="critical",
        summary="{{ $labels.namespace }}/{{ $labels.pod }} on {{ $labels.node }} is not protected from the kernel's "
        "OOM killer",
        description=(
            "The guard cannot lower the oom_score_adj of {{ $value }} of the pod's processes. When host memory runs "
            "out, the kernel may kill the pod before any disposable pod. The guard's log and the pod's Events have "
            "the reason."
        ),
        fires={names.METRIC_GUARD_UNHELD: "1x30"},
        silent={names.METRIC_GUARD_UNHELD: "1x13 0x16"},
    )
    by_pod = [f"max by (node, namespace, pod) ({m})" for m in (names.METRIC_GUARD_HELD, names.METRIC_GUARD_UNHELD)]
    running = 'max by (namespace, pod) (kube_pod_status_phase{phase="Running"}) == 1'
    yield Alert(
        "MemoryGuardBlind",
        f"{' + '.join(by_pod)} == 0 and on (namespace, pod) {running}",
        hold="2m",
        severity="critical",
        summary=(
            "The guard of {{ $labels.node }} finds no process of the running pod "
            "{{ $labels.namespace }}/{{ $labels.pod }}"
        ),
        description=(
            "The guard finds processes by control groups with the pod's UID. A sandbox of gVisor or Kata hides a "
            "pod's processes. When host memory runs out, the kernel may kill the pod before any disposable pod."
        ),
        fires={names.METRIC_GUARD_HELD: "0x30", names.METRIC_GUARD_UNHELD: "0x30", _RUNS: "1x30"},
        silent={names.METRIC_GUARD_HELD: "0x30", names.METRIC_GUARD_UNHELD: "0x30", _RUNS: "0x30"},
    )
    yield Alert(
        "MemoryGuardStale",
        f"max by (node) ({names.METRIC_GUARD_API_AGE}) > {STALE_SECONDS}",
        hold="2m",
        severity="warning",
        summary="The guard of {{ $labels.node }} has had no response from the API server for "
        "{{ $value | humanizeDuration }}",
        description=(
            "The guard still protects the pods that it knows. Newer pods keep the kubelet's oom_score_adj. Read the "
            "guard's log."
        ),
        fires={names.METRIC_GUARD_API_AGE: "30+60x30"},
        silent={names.METRIC_GUARD_API_AGE: f"{STALE_SECONDS}x30"},
    )
