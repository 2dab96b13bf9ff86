"""Simulates the whole system: the agents' real code with a simulated API server, devices and tenants.

All random choices depend on a seed. README.md explains how to read a failure.
"""
