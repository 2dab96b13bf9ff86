"""exporter: serves the use of GPU memory by device and by container, and publishes the node's devices."""
