"""The local cluster's error."""


class ClusterError(Exception):
    """The cluster does not start, or a part of it ended; the message has the end of the log."""
