"""Reads the node on which an agent runs: control groups, and the pods that the kubelet runs there."""
