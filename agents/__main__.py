"""`python -m agents <agent>`: runs one agent until its work is done, SIGTERM comes or an error ends it.

Exit status: 0 done, 1 an error that the log names, 2 no such agent, 143 stopped by SIGTERM before the work was done.
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

_CERTIFY = "certify"  # run by the init container of the extender's pod

STOPPED = 128 + signal.SIGTERM
GRACE_SECONDS = 1.0  # a run ends within 2 s of SIGTERM


def main(argv: list[str] | None = None) -> int:
    """Runs the agent that `argv` names. Returns its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1 or arguments[0] not in programs():
        print(f"name one agent of {', '.join(programs())} (got {' '.join(arguments) or 'nothing'})", file=sys.stderr)
        return 2
    log = Log(arguments[0], sys.stdout)
    try:  # the try block includes the handler itself, because SIGTERM may already come there
        _handle_sigterm(log)
        return _run(arguments[0], log)
    except StoppedError:
        log.warning("stopped by SIGTERM")
        return STOPPED


def programs() -> Sequence[str]:
    """Returns the names of the agents: the packages next to this module that have a main, and certify."""
    found = pkgutil.iter_modules(importlib.import_module("agents").__path__)
    packages = (each.name for each in found if each.ispkg)
    return [*(name for name in sorted(packages) if find_spec(f"agents.{name}.main")), _CERTIFY]


def _run(agent: str, log: Log) -> int:
    try:
        # The module is imported by name, so that an exporter loads no modules of other agents.
        module = "agents.extender.certs" if agent == _CERTIFY else f"agents.{agent}.main"
        status: int = importlib.import_module(module).start(os.environ, log)
    except AgentError as error:
        log.error(str(error))
        return 1
    return status


def _handle_sigterm(log: Log) -> None:
    """Makes SIGTERM raise StoppedError in the main thread.

    A call that blocks outside Python for too long, such as the resolution of a name, ends with the process.
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
    if status == STOPPED:
        os._exit(status)  # an orderly end of Python may abort on a thread that hangs in a connection
    raise SystemExit(status)
