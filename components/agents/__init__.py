"""Declares the agents. Each module holds one agent's settings, rights and workload."""
