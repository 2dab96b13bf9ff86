"""The scrapes that the alerts rest on, as PodMonitors of the Prometheus Operator."""

from typing import Any

from components.base.agent import METRICS_PORT
from components.base.manifest import Manifest
from components.monitoring.args import AlertsArgs
from tenancy import names

SCRAPE_SECONDS = 15


def pod_monitor(args: AlertsArgs) -> Manifest:
    """The scrape of the node agents' pods, with the node's name on every sample."""
    agents = {"key": names.LABEL_NAME, "operator": "In", "values": [names.EXPORTER, names.GUARD]}
    relabelings = [
        {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"},
        # These are the agent's own; a sample's labels name the pod that it measures.
        {"action": "labeldrop", "regex": "namespace|pod|container|endpoint"},
    ]
    namespace = names.node_agent_namespace(args.cluster.system_namespace)
    return _monitor(args.metadata(), namespace, {"matchExpressions": [agents]}, relabelings=relabelings)


def scheduler_monitor(args: AlertsArgs) -> Manifest:
    """The scrape of the scheduler's extenders. Series keep the name of their pod, because one pod leads."""
    selector = {"matchLabels": {names.LABEL_NAME: names.SCHEDULER}}
    return _monitor(args.metadata(names.SCHEDULER), args.cluster.system_namespace, selector)


def _monitor(metadata: Manifest, namespace: str, selector: Manifest, **endpoint: Any) -> Manifest:
    spec = {
        "namespaceSelector": {"matchNames": [namespace]},
        "selector": selector,
        "podMetricsEndpoints": [{"port": METRICS_PORT, "interval": f"{SCRAPE_SECONDS}s", **endpoint}],
    }
    return {"apiVersion": names.PROMETHEUS_OPERATOR_API, "kind": "PodMonitor", "metadata": metadata, "spec": spec}
