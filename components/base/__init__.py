"""What every component stands on: Specs, manifests, identities, and the pod that all agents share."""
