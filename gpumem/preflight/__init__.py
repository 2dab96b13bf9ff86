"""Compares a stack with the current state of a cluster, for `make preflight` and `make up`."""
