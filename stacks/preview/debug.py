"""Debug messages, which only `--debug` shows.

The SDK sends at least four messages for each resource, and waits for each answer: half of the program's time at 1,000
tenants (docs/choosing/benchmarks.md). The engine drops them unless it was started with --debug, which the program
cannot see.
"""

from collections.abc import Mapping, Sequence

import pulumi

_FLAGS = ("--debug", "-d")
VARIABLE = "GPU_TENANCY_DEBUG"


def drop_unread(environ: Mapping[str, str]) -> None:
    """Stops this process from sending debug messages, unless VARIABLE is set."""
    if not environ.get(VARIABLE):
        pulumi.log.debug = _nothing


def debug_environment(arguments: Sequence[str]) -> Mapping[str, str]:
    """The environment that asks a preview's program for debug messages, if one of the arguments does."""
    return {VARIABLE: "1"} if any(argument.partition("=")[0] in _FLAGS for argument in arguments) else {}


def _nothing(
    msg: str, resource: pulumi.Resource | None = None, stream_id: int | None = None, ephemeral: bool | None = None
) -> None:
    """Replaces pulumi.log.debug."""
