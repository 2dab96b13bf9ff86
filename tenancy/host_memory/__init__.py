"""Computes with host memory. Memory pools promise more host memory than their nodes have. The modules contain memory
pools, the order in which pods are killed or evicted, and histories of use.
"""
