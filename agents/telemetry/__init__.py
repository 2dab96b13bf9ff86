"""GPU memory as it is measured: a device, its ResourceSlice, and the client of the exporters."""
