"""Times that components, alerts and agents must agree on, in seconds."""

# Nobody acts on an older reading of a device.
FRESH_SECONDS = 30
# kube-scheduler waits so long for an answer of the extender (httpTimeout).
EXTENDER_TIMEOUT_SECONDS = 5
