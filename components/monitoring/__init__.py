"""Alerts, the dashboard, and the route to the channel that they are sent to."""
