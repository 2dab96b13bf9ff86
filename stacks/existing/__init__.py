"""Finds objects that already exist in the cluster, before a rollout and before a removal (docs/adr/0034)."""
