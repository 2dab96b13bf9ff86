"""Contains the programs that run in the cluster, shipped as one zipapp.

They use the standard library and tenancy only.
"""
