"""Implements `kubectl gpumem`.

The subcommands show the pods on each device, the free memory, and the reason why a pod waits. Each one builds its
report first as data and then as text, and changes nothing in the cluster.
"""
