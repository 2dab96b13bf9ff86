"""Errors that end an agent's run."""


class AgentError(Exception):
    """What an operator can answer. The run ends, or tries again, with one log line instead of a traceback."""

    @property
    def transient(self) -> bool:
        """Whether the next pass of the same run may go better."""
        return False


class StoppedError(BaseException):
    """SIGTERM came. A BaseException, so that no handler of ordinary errors takes it for one."""
