"""Simulates a cluster in virtual time: the agents' own code over an API server, devices and workloads."""
