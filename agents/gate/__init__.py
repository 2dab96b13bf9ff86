"""gate: scales on-demand tenants 0 to 1 into real slack, and back."""
