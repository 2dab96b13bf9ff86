"""Errors that end an agent's run."""


class AgentError(Exception):
    """An error that an operator can solve. It is logged in one line, without a traceback."""

    @property
    def transient(self) -> bool:
        """Returns True if the next pass of the same run may succeed."""
        return False


class StoppedError(BaseException):
    """SIGTERM came. It is a BaseException, so that no handler of ordinary errors catches it."""
