"""Computes with host memory that is oversubscribed on purpose: pools, the order of kills and evictions,
histories of use.
"""
