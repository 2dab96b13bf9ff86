"""Simulates a cluster in virtual time. The agents' real code runs with a simulated API server, devices and
workloads.
"""
