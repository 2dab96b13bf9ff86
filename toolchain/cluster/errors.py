"""The error class of the local cluster."""


class ClusterError(Exception):
    """A part of the cluster did not start or has ended, the API server refused a request, or a wait took too long."""
