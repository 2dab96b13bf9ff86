"""Host memory, oversubscribed on purpose: pools, the order of kills and evictions, histories of use."""
