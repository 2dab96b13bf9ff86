"""Contains the programs that run in the cluster, shipped as one zipapp.

The agents import only the standard library and tenancy/.
"""
