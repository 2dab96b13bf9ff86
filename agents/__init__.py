"""Contains the programs that run in the cluster, shipped as one zipapp.

They import only the standard library and tenancy/.
"""
