"""Host memory, oversubscribed on purpose: pools, who is killed when a node runs out, what a history shows."""
