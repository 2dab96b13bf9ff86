"""The digest: an Alertmanager route to one Slack channel, for the Prometheus Operator."""

from typing import Annotated

from pydantic import Field

from components.base.manifest import Manifest
from components.base.spec import DnsLabel, Spec
from components.monitoring.rules.alert import ONCE
from tenancy import names

_RECEIVER, _TOLD_ONCE = "slack", "slack-once"


class SlackWebhook(Spec):
    """A key of a Secret that holds the webhook's URL; it is in the namespace of the alerts."""

    secret: DnsLabel
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$")] = "url"


class DigestSpec(Spec):
    """AlertmanagerConfig: our alerts in groups, critical ones again each hour, others twice a day; a recycle is one
    message."""

    slack_webhook: SlackWebhook
    channel: Annotated[str, Field(pattern=r"^#[^\s#]+$")] = "#alerts"


def alertmanager_config(spec: DigestSpec, metadata: Manifest) -> Manifest:
    """Takes every alert with our label, in whichever namespace its cause is: Alertmanager's own
    alertmanagerConfigMatcherStrategy must not narrow it to the config's namespace."""
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
                        "receiver": _TOLD_ONCE,
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
                {"name": _TOLD_ONCE, "slackConfigs": [_slack(spec) | {"sendResolved": False}]},
            ],
        },
    }


def _equals(label: str, value: str) -> Manifest:
    return {"name": label, "value": value, "matchType": "="}


def _slack(spec: DigestSpec) -> Manifest:
    return {
        "apiURL": {"name": spec.slack_webhook.secret, "key": spec.slack_webhook.key},
        "channel": spec.channel,
        "sendResolved": True,
        "title": "{{ .Status | toUpper }}: {{ .GroupLabels.alertname }} ({{ len .Alerts }})",
        "titleLink": "{{ (index .Alerts 0).GeneratorURL }}",
        "text": "{{ range .Alerts }}{{ .Annotations.summary }}\n{{ .Annotations.description }}\n"
        "{{ .Annotations.runbook_url }}\n{{ end }}",
    }
