"""The installer's errors."""


class ToolchainError(Exception):
    """Ends the run with this message, exit code 1 and no traceback."""


class UnavailableError(Exception):
    """A way to obtain a tool is closed here, and this is why; the next way is tried."""
