"""The scrapes that the alerts rest on, as PodMonitors of the Prometheus Operator."""

from components.agents import scheduler
from components.base.agent import METRICS_PORT
from components.base.manifest import Manifest
from components.monitoring.args import AlertsArgs
from tenancy import names

SCRAPE_SECONDS = 15


def pod_monitor(args: AlertsArgs) -> Manifest:
    """Has Prometheus scrape the node agents' pods, with the node's name on every sample."""
    return {
        "apiVersion": names.PROMETHEUS_OPERATOR_API,
        "kind": "PodMonitor",
        "metadata": args.metadata(),
        "spec": {
            "namespaceSelector": {"matchNames": [names.node_agent_namespace(args.cluster.system_namespace)]},
            "selector": {
                "matchExpressions": [
                    {"key": names.LABEL_NAME, "operator": "In", "values": [names.EXPORTER, names.GUARD]}
                ]
            },
            "podMetricsEndpoints": [
                {
                    "port": METRICS_PORT,
                    "interval": f"{SCRAPE_SECONDS}s",
                    "relabelings": [
                        {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"},
                        # Of the agent's own pod: the samples' are those of whom they are about.
                        {"action": "labeldrop", "regex": "namespace|pod|container|endpoint"},
                    ],
                }
            ],
        },
    }


def scheduler_monitor(args: AlertsArgs) -> Manifest:
    """Has Prometheus scrape the scheduler's extenders; each pod's series keep its name, since one of them leads."""
    return {
        "apiVersion": names.PROMETHEUS_OPERATOR_API,
        "kind": "PodMonitor",
        "metadata": args.metadata(names.SCHEDULER),
        "spec": {
            "namespaceSelector": {"matchNames": [args.cluster.system_namespace]},
            "selector": {"matchLabels": scheduler.selector()},
            "podMetricsEndpoints": [{"port": METRICS_PORT, "interval": f"{SCRAPE_SECONDS}s"}],
        },
    }
