"""Implements `kubectl gpumem preflight`, which compares a stack with the current state of a cluster."""
