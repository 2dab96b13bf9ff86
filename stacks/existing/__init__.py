"""Finds what is in the cluster already: before a rollout, and before a removal (docs/adr/0034)."""
