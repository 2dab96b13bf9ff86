"""Errors that end an agent's run."""


class AgentError(Exception):
    """An error that an operator can fix. The log has its message without a traceback."""

    @property
    def transient(self) -> bool:
        """Returns True if the next pass of the same run may succeed."""
        return False


class StoppedError(BaseException):
    """SIGTERM came. This class is a BaseException, so that code for ordinary errors does not catch it."""
