"""What is said when there is no cluster to be had."""


class ClusterError(Exception):
    """The cluster does not start, or a part of it ended; the message has the end of the log."""
