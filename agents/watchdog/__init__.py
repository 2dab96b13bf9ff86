"""watchdog: recycles the smallest set of over-budget pods on a device that is under its floor."""
