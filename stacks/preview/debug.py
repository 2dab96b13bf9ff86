"""Suppresses the debug messages of Pulumi's SDK, which Pulumi shows only with `--debug`.

Pulumi's SDK sends at least four debug messages for each resource and waits for each response. With 1,000 tenants, the
SDK's debug messages took half of the program's time (docs/choosing/benchmarks.md). Pulumi's engine drops debug messages
unless it was started with --debug. The program cannot find out if the engine was started with --debug.
"""

from collections.abc import Mapping, Sequence

import pulumi

_FLAGS = ("--debug", "-d")
VARIABLE = "GPU_TENANCY_DEBUG"


def drop_debug_messages(environ: Mapping[str, str]) -> None:
    """Stops this process from sending debug messages, unless VARIABLE is set."""
    if not environ.get(VARIABLE):
        pulumi.log.debug = _nothing


def debug_environment(arguments: Sequence[str]) -> Mapping[str, str]:
    """Returns an environment variable that switches debug messages on, if --debug is one of the arguments."""
    return {VARIABLE: "1"} if any(argument.partition("=")[0] in _FLAGS for argument in arguments) else {}


def _nothing(
    msg: str, resource: pulumi.Resource | None = None, stream_id: int | None = None, ephemeral: bool | None = None
) -> None: ...
