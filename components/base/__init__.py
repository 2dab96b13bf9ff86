"""The base of every component: Specs, manifests, identities, and the pod that all agents share."""
