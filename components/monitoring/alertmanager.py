"""The digest: an Alertmanager route to one Slack channel, for the Prometheus Operator."""

from pydantic import Field

from components.base.manifest import Manifest
from components.base.spec import DnsLabel, Spec
from components.monitoring.alert import ONCE
from tenancy import names

_RECEIVER, _ONCE_RECEIVER = "slack", "slack-once"


class SlackWebhook(Spec):
    """A Secret in the system namespace with the webhook's URL under the key `url`."""

    secret: DnsLabel = Field(description="Name of the Secret.", examples=["alerts-webhook"])


class DigestSpec(Spec):
    """The AlertmanagerConfig of the digest. Alerts are grouped. Critical alerts are repeated each hour, and other
    alerts every 12 hours. The digest reports a recycle once. Slack's webhook decides the channel."""

    slack_webhook: SlackWebhook = Field(description="The Secret with the webhook's URL.")


def alertmanager_config(spec: DigestSpec, metadata: Manifest) -> Manifest:
    """Returns the AlertmanagerConfig with a route for alerts with our label, from any namespace.

    The setting alertmanagerConfigMatcherStrategy of Alertmanager must allow a route for alerts from other namespaces.
    """
    return {
        "apiVersion": "monitoring.coreos.com/v1alpha1",
        "kind": "AlertmanagerConfig",
        "metadata": metadata,
        "spec": {
            "route": {
                "receiver": _RECEIVER,
                "matchers": [_equals(names.ALERT_LABEL, names.PROJECT)],
                "groupBy": ["alertname"],
                "groupWait": "30s",
                "groupInterval": "5m",
                "repeatInterval": "12h",
                "routes": [
                    {
                        "receiver": _RECEIVER,
                        "matchers": [_equals("severity", "critical")],
                        "groupBy": ["alertname"],
                        "repeatInterval": "1h",
                    },
                    {
                        "receiver": _ONCE_RECEIVER,
                        "matchers": [_equals("severity", ONCE)],
                        "groupBy": ["alertname", "tenant"],
                        "groupWait": "10s",
                        "groupInterval": "1m",
                        "repeatInterval": "12h",
                    },
                ],
            },
            "receivers": [
                {"name": _RECEIVER, "slackConfigs": [_slack(spec)]},
                {"name": _ONCE_RECEIVER, "slackConfigs": [_slack(spec) | {"sendResolved": False}]},
            ],
        },
    }


def _equals(label: str, value: str) -> Manifest:
    return {"name": label, "value": value, "matchType": "="}


def _slack(spec: DigestSpec) -> Manifest:
    return {
        "apiURL": {"name": spec.slack_webhook.secret, "key": "url"},
        "sendResolved": True,
        "title": "{{ .Status | toUpper }}: {{ .GroupLabels.alertname }} ({{ len .Alerts }})",
        "titleLink": "{{ (index .Alerts 0).GeneratorURL }}",
        "text": "{{ range .Alerts }}{{ .Annotations.summary }}\n{{ .Annotations.description }}\n"
        "{{ .Annotations.runbook_url }}\n{{ end }}",
    }
