"""Computes with host memory that is oversubscribed on purpose: memory pools, the order of kills and evictions, and
histories of use.
"""
