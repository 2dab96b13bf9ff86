"""The installer's errors."""


class ToolchainError(Exception):
    """Ends the run with this message, exit code 1 and no traceback."""


class UnavailableError(Exception):
    """A source does not have the tool. The message is the reason. The installer tries the next source."""
