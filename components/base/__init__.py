"""The base of every component: Specs, manifests, identities, and the pod template that all agents share."""
