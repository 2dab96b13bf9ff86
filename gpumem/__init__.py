"""gpumem: `kubectl gpumem` answers who has which GPU memory, what is free, and why a pod waits."""
