"""Defines times in seconds on which components, alerts and agents must agree."""

# No agent acts on a reading of a device that is older than this.
FRESH_SECONDS = 30
# kube-scheduler waits this long for an answer of the extender (httpTimeout).
EXTENDER_TIMEOUT_SECONDS = 5
