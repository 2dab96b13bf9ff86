"""Computes with the GPU memory of single devices: placement, allocation, fragmentation, waiting seats and recycles."""
