"""watchdog: recycles the smallest set of pods over their budgets on a device below its floor."""
