"""Defines times in seconds that components, alerts and agents share."""

# Agents ignore a reading that is older than this number of seconds.
FRESH_SECONDS = 30
# kube-scheduler waits for a response of the extender for this number of seconds (httpTimeout).
EXTENDER_TIMEOUT_SECONDS = 5
# A successful run of an agent ends once a minute, a few seconds earlier or later. Prometheus learns of a successful run
# up to two scrapes later. If one run fails, 120 s pass between two successful runs. With the limit of 165 s, the alert
# fires within three minutes after the last successful run. After only one failed run, the alert does not fire.
SILENT_SECONDS = 165
