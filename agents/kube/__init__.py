"""The Kubernetes API: a client, watches, and the objects that several agents use."""
