"""The scrapes that the alerts need, as PodMonitors and as a configuration file for Prometheus."""

import re
from collections.abc import Sequence
from typing import Any

from components.base.agent import METRICS_PORT
from components.base.manifest import Manifest
from components.monitoring.args import AlertsArgs
from tenancy import names

SCRAPE_SECONDS = 15
_META = "__meta_kubernetes_"
_KUEUE_METRICS = "metrics-service"  # the label component of the Service in Kueue's chart
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 (a path)
_NODE_AGENTS = (names.EXPORTER, names.GUARD)


def pod_monitor(args: AlertsArgs) -> Manifest:
    """Returns the PodMonitor of the node agents. The PodMonitor of the node agents adds the node's name to every
    sample."""
    agents = {"key": names.LABEL_NAME, "operator": "In", "values": [*_NODE_AGENTS]}
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


def scrape_configs(args: AlertsArgs) -> Manifest:
    """Returns the scrape configurations of all monitors, as a file for Prometheus' setting `scrape_config_files`."""
    system = args.cluster.system_namespace
    node_agents = _scrape(
        names.ALERTS, names.node_agent_namespace(system), _NODE_AGENTS, {"node": f"{_META}pod_node_name"}
    )
    own = {"namespace": f"{_META}namespace", "pod": f"{_META}pod_name", "container": f"{_META}pod_container_name"}
    scheduler = _scrape(names.SCHEDULER, system, [names.SCHEDULER], own)
    kueue = [_kueue_scrape(args.kueue_namespace)] if args.kueue_namespace else []
    return {"scrape_configs": [node_agents, *([scheduler] if args.places_by_device else []), *kueue]}


def _kueue_scrape(namespace: str) -> Manifest:
    component = f"{_META}service_label_app_kubernetes_io_component"
    return {
        "job_name": names.KUEUE,
        "scheme": "https",
        "scrape_interval": f"{SCRAPE_SECONDS}s",
        "authorization": {"credentials_file": _TOKEN},
        "tls_config": {"insecure_skip_verify": True},
        "kubernetes_sd_configs": [{"role": "endpoints", "namespaces": {"names": [namespace]}}],
        "relabel_configs": [{"source_labels": [component], "regex": _KUEUE_METRICS, "action": "keep"}],
    }


def _scrape(job: str, namespace: str, agents: Sequence[str], labels: Manifest) -> Manifest:
    """Returns a scrape of the agents' metrics ports.

    Each key of `labels` is a label that the samples get. The value of a label is the service discovery label with the
    text.
    """
    name = re.sub(r"[^a-zA-Z0-9_]", "_", names.LABEL_NAME)
    keep = {f"{_META}pod_label_{name}": "|".join(agents), f"{_META}pod_container_port_name": METRICS_PORT}
    kept = [{"source_labels": [label], "regex": regex, "action": "keep"} for label, regex in keep.items()]
    return {
        "job_name": job,
        "scrape_interval": f"{SCRAPE_SECONDS}s",
        "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [namespace]}}],
        "relabel_configs": [
            *kept,
            {"source_labels": [f"{_META}pod_phase"], "regex": "Succeeded|Failed", "action": "drop"},
            *({"source_labels": [source], "target_label": label} for label, source in labels.items()),
        ],
    }


def _monitor(metadata: Manifest, namespace: str, selector: Manifest, **endpoint: Any) -> Manifest:
    spec = {
        "namespaceSelector": {"matchNames": [namespace]},
        "selector": selector,
        "podMetricsEndpoints": [{"port": METRICS_PORT, "interval": f"{SCRAPE_SECONDS}s", **endpoint}],
    }
    return {"apiVersion": names.PROMETHEUS_OPERATOR_API, "kind": "PodMonitor", "metadata": metadata, "spec": spec}
