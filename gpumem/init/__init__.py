"""init: proposes a stack file from a cluster."""
