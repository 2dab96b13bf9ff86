"""`python -m agents <agent>`: runs one agent. The agent ends after its work, after SIGTERM, or after an error.

The exit status is 0 after completed work, and 1 after an error. The agent's log shows the error. The exit status is 2
if no agent has this name, and 143 after SIGTERM.
"""

import importlib
import os
import pkgutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from types import FrameType

from agents.runtime.errors import AgentError, StoppedError
from agents.runtime.log import Log

STOPPED = 128 + signal.SIGTERM
GRACE_SECONDS = 1.0  # with this delay, an agent ends within 2 s of SIGTERM


def main(argv: list[str] | None = None) -> int:
    """Runs the agent that `argv` names, and returns the agent's exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1 or arguments[0] not in programs():
        print(f"name one agent of {', '.join(programs())} (got {' '.join(arguments) or 'nothing'})", file=sys.stderr)
        return 2
    log = Log(arguments[0], sys.stdout)
    try:  # SIGTERM may come while Python installs the handler
        _handle_sigterm(log)
        return _run(arguments[0], log)
    except StoppedError:
        log.warning("stopped by SIGTERM")
        return STOPPED


def programs() -> Sequence[str]:
    """Returns the names of the agents: each package of agents/ with a module main."""
    found = pkgutil.iter_modules(importlib.import_module("agents").__path__)
    packages = (each.name for each in found if each.ispkg)
    return [name for name in sorted(packages) if find_spec(f"agents.{name}.main")]


def _run(agent: str, log: Log) -> int:
    try:
        # Only the module of this agent is imported, so that the modules of other agents take no host memory.
        status: int = importlib.import_module(f"agents.{agent}.main").start(os.environ, log)
    except AgentError as error:
        log.error(str(error))
        return 1
    return status


def _handle_sigterm(log: Log) -> None:
    """Makes SIGTERM raise StoppedError in the main thread.

    Python cannot interrupt some calls, such as a DNS lookup. If the main thread is in a call that Python cannot
    interrupt, the process ends GRACE_SECONDS after SIGTERM.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable)
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_end_in_time, args=(readable, log), daemon=True).start()


def _end_in_time(readable: int, log: Log) -> None:
    os.read(readable, 1)
    time.sleep(GRACE_SECONDS)
    log.warning("stopped by SIGTERM, in the middle of a call")
    os._exit(STOPPED)


def _stop(number: int, frame: FrameType | None) -> None:
    raise StoppedError


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Python's normal exit waits for a thread that hangs in a connection, and aborts if another thread just writes.
    os._exit(status)
