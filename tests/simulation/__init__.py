"""Tests the whole system in virtual time: the agents' own code over an API server, devices and tenants of this process.

A seed decides everything. README.md explains how to read a failure and how to keep it.
"""
