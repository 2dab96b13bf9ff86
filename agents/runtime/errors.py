"""Errors that end the run of an agent."""


class AgentError(Exception):
    """An error that an operator can fix. The log has its message without a traceback."""

    @property
    def ends_pass(self) -> bool:
        """Returns True if the error makes the whole pass worthless, and not only one of its items."""
        return False

    @property
    def transient(self) -> bool:
        """Returns True if the next pass of the same run may succeed."""
        return False


class StoppedError(BaseException):
    """SIGTERM came. AgentError is a BaseException, so that code for ordinary errors does not catch it."""
