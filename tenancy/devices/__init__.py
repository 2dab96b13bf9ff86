"""GPU memory by device: whether budgets fit, which device a pod gets, what fragments, whom to recycle."""
