"""Tests the whole system in virtual time: the agents' real code with a simulated API server, devices and tenants.

All random choices depend on a seed. README.md explains how to read a failure, and how to add a test for the failure.
"""
