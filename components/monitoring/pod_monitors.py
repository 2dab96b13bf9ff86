"""The PodMonitors of the agents and the ServiceMonitor of Kueue, which the alerts need."""

from typing import Any

from components.base.agent import METRICS_PORT
from components.base.manifest import Manifest
from components.monitoring.args import AlertsArgs
from tenancy import names

SCRAPE_SECONDS = 15
_META = "__meta_kubernetes_"
_KUEUE_METRICS = "metrics-service"  # the label component of the Service in Kueue's chart
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 (a path)


def pod_monitor(args: AlertsArgs) -> Manifest:
    """Returns the PodMonitor of the node agents. The PodMonitor of the node agents adds the node's name to every
    sample."""
    agents = {"key": names.LABEL_NAME, "operator": "In", "values": [names.EXPORTER, names.GUARD]}
    relabelings = [
        {"sourceLabels": [f"{_META}pod_node_name"], "targetLabel": "node"},
        # Prometheus would write the agent's pod into the labels of the measured pod. The exporter has written the
        # measured pod into its labels, so the labels stay unchanged.
        {"action": "labeldrop", "regex": "namespace|pod|container|endpoint"},
    ]
    namespace = names.node_agent_namespace(args.cluster.system_namespace)
    return _monitor(args.metadata(), namespace, {"matchExpressions": [agents]}, relabelings=relabelings)


def scheduler_monitor(args: AlertsArgs) -> Manifest:
    """Returns the PodMonitor of the extenders. Each series of an extender keeps its pod's name, because only one of the
    pods is the leader."""
    selector = {"matchLabels": {names.LABEL_NAME: names.SCHEDULER}}
    return _monitor(args.metadata(names.SCHEDULER), args.cluster.system_namespace, selector)


def kueue_monitor(args: AlertsArgs, namespace: str) -> Manifest:
    """Returns the ServiceMonitor for Kueue's metrics, like the one in Kueue's chart. Kueue's certificate is
    self-signed. Kueue asks the API server whether Prometheus' account may read /metrics."""
    endpoint = {
        "port": "https",
        "scheme": "https",
        "interval": f"{SCRAPE_SECONDS}s",
        "bearerTokenFile": _TOKEN,
        "tlsConfig": {"insecureSkipVerify": True},
        # Prometheus would write Kueue's own namespace into the label `namespace`. Kueue has written the LocalQueue's
        # namespace into this label.
        "relabelings": [{"action": "labeldrop", "regex": "namespace"}],
    }
    return {
        "apiVersion": names.PROMETHEUS_OPERATOR_API,
        "kind": "ServiceMonitor",
        "metadata": args.metadata(names.KUEUE),
        "spec": {
            "namespaceSelector": {"matchNames": [namespace]},
            "selector": {"matchLabels": {"app.kubernetes.io/component": _KUEUE_METRICS}},
            "endpoints": [endpoint],
        },
    }


def _monitor(metadata: Manifest, namespace: str, selector: Manifest, **endpoint: Any) -> Manifest:
    spec = {
        "namespaceSelector": {"matchNames": [namespace]},
        "selector": selector,
        "podMetricsEndpoints": [{"port": METRICS_PORT, "interval": f"{SCRAPE_SECONDS}s", **endpoint}],
    }
    return {"apiVersion": names.PROMETHEUS_OPERATOR_API, "kind": "PodMonitor", "metadata": metadata, "spec": spec}
