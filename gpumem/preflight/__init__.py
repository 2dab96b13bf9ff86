"""preflight: compares a stack with a cluster as it is now."""
