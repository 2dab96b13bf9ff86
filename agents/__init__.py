"""The programs that run in the cluster. One zipapp contains all agents.

The agents import only the standard library and tenancy/.
"""
