"""Provides measured GPU memory: a device, its ResourceSlice, and the client of the exporters."""
