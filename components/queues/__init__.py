"""Queues: Kueue's flavors, cohorts, ClusterQueues, LocalQueues, topologies and admission checks (record 0002)."""
