"""watchdog: recycles as few pods over their budgets as possible on a device below its floor."""
