"""gate: scales on-demand workloads from 0 to 1 while there is headroom, and back."""
