"""Defines times in seconds that components, alerts and agents share."""

# No agent acts on a reading of a device that is older than this number of seconds.
FRESH_SECONDS = 30
# kube-scheduler waits this number of seconds for a response of the extender (httpTimeout).
EXTENDER_TIMEOUT_SECONDS = 5
