"""The Kubernetes API: the client, watches, and the objects that more than one agent reads or writes."""
