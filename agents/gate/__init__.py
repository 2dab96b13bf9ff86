"""gate: scales on-demand workloads from 0 to 1 replica while there is headroom, and back to 0."""
