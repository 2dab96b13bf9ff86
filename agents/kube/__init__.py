"""The Kubernetes API: a client, watches, and objects that several agents use."""
