"""Measured GPU memory: devices, their ResourceSlices, and a client of the exporters."""
