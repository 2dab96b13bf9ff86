"""What only `--debug` shows.

The SDK tells the engine of each step of each resource, at least four, and waits for each answer: half of the program's
time at 1,000 tenants (docs/benchmarks.md). The engine throws them away unless it was started with --debug, and does not
say whether it was.
"""

from collections.abc import Mapping, Sequence

import pulumi

_FLAGS = ("--debug", "-d")
VARIABLE = "GPU_TENANCY_DEBUG"


def drop_unread(environ: Mapping[str, str]) -> None:
    """From now on this process sends no debug messages, unless somebody said that they are wanted."""
    if not environ.get(VARIABLE):
        pulumi.log.debug = _nothing


def wanted(arguments: Sequence[str]) -> Mapping[str, str]:
    """What says so to the program of a preview with these arguments, in its environment."""
    return {VARIABLE: "1"} if any(argument.partition("=")[0] in _FLAGS for argument in arguments) else {}


def _nothing(
    msg: str, resource: pulumi.Resource | None = None, stream_id: int | None = None, ephemeral: bool | None = None
) -> None:
    """In the place of pulumi.log.debug."""
