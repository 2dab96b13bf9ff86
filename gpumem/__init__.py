"""Implements `kubectl gpumem`.

The subcommands of kubectl gpumem show the pods on each device, the free memory, and the reason why a pod waits.
"""
