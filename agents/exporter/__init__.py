"""exporter: serves GPU memory by device, by container and by budget, and publishes the node's devices."""
