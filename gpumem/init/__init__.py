"""Implements `kubectl gpumem init`, which proposes a stack file from a cluster."""
