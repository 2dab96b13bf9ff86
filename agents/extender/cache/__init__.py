"""The extender's cache: nodes, their devices, and which pod holds how much of each."""
