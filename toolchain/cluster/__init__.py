"""Runs a temporary Kubernetes cluster on loopback, with a real control plane and simulated nodes.

On Linux as root, the cluster also has a real node.
"""
