"""Alerts, the dashboard, and the Alertmanager route to a Slack channel."""
