"""Times that components, alerts and agents must agree on, in seconds."""

# Agents do not act on an older reading of a device.
FRESH_SECONDS = 30
# The time for which kube-scheduler waits for an answer of the extender (httpTimeout).
EXTENDER_TIMEOUT_SECONDS = 5
