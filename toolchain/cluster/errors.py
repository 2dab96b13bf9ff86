"""The error of the local cluster."""


class ClusterError(Exception):
    """A part of the cluster did not start or has ended, a request was refused, or a wait took too long."""
