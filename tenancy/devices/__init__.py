"""Computes with GPU memory by device: placement, allocation, fragmentation, waiting seats, recycling."""
