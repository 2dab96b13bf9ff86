"""The extender's cache of the nodes, their devices, and the MiB that each pod holds on each device."""
