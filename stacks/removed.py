"""Lists the keys that only earlier versions read, and the replacement for each key.

Each key consists of the part of the stack file and the last name in the key's path.
"""

VERSION = "0.2.0"
REMOVED = {
    "alerts.dashboard_labels": "the dashboard has the label grafana_dashboard: 1",
    "alerts.key": "the key of the Secret is url",
    "alerts.namespace": "the alerts are in the system namespace",
    "memory_pools.eviction_interval_seconds": "it is 10, which is built into the kubelet",
    "on_demand.at_least": "demand is a number of at least 1; compare within the query where that is too low",
    "on_demand.cool_down_seconds": "it is 300",
    "on_demand.margin_mib": "it is 256; raise need_mib where the gate opens too early",
    "on_demand.samples": "three samples in a row must agree",
    "pools.placement": "scheduler.placement holds for every pool",
    "queues.flavor_order": "Kueue tries the flavors in the order of their names",
    "scheduler.driver": "placement: dra means claims on the devices of NVIDIA's DRA driver",
    "scheduler.hold_seconds": "a seat is held back for 60 s",
    "scheduler.measured": "the scheduler always goes by what the exporter measures",
    "scheduler.port": "it is 9402",
    "scheduler.replicas": "there are 2",
    "watchdog.cool_down_seconds": "it is 600",
    "watchdog.delete_blocked": "a pod that a PodDisruptionBudget holds stays; change the budget",
    "watchdog.grace_seconds": "it is 30",
    "watchdog.node_evictions_per_hour": "evictions_per_hour of each tenant is the limit",
    "watchdog.recycle_bare_pods": "a pod without a controller stays; give it a Deployment",
    "watchdog.total_evictions_per_hour": "evictions_per_hour of each tenant is the limit",
    "watchdog.waiting_seconds": "it is 30",
}


def removal_note(part: str, name: str) -> str | None:
    """Returns the end of the error message about a removed key, or None for a key that no version had."""
    reason = REMOVED.get(f"{part}.{name}")
    return f"was removed in {VERSION}: {reason}; remove the key" if reason else None
