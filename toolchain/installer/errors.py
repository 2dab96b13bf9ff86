"""The installer's errors."""


class ToolchainError(Exception):
    """An error that ends the installer with a message, with exit code 1 and without a traceback."""


class UnavailableError(Exception):
    """A source does not have the tool. The message of the error is the reason. The installer then tries the next
    source."""
