"""`python -m agents <agent>`: runs one agent until its work is done, SIGTERM comes or an error ends it.

Exit status: 0 done, 1 an error that the log names, 2 no such agent, 143 stopped by SIGTERM before the work was done.
"""

import importlib
import os
import signal
import sys
import threading
import time
from types import FrameType

from agents.runtime.errors import AgentError, StoppedError
from agents.runtime.log import Log

AGENTS = {
    "reconcile": "agents.reconcile.main",
    "watchdog": "agents.watchdog.main",
    "gate": "agents.gate.main",
    "exporter": "agents.exporter.main",
    "guard": "agents.guard.main",
    "extender": "agents.extender.main",
    "certify": "agents.extender.certs",
}

STOPPED = 128 + signal.SIGTERM
GRACE_SECONDS = 1.0  # a run has ended within 2 s of SIGTERM


def main(argv: list[str] | None = None) -> int:
    """The exit status of the agent that `argv` names."""
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1 or arguments[0] not in AGENTS:
        print(f"name one agent of {', '.join(AGENTS)} (got {' '.join(arguments) or 'nothing'})", file=sys.stderr)
        return 2
    log = Log(arguments[0], sys.stdout)
    try:  # around all that follows the handler: SIGTERM may come in its first instruction
        _heed_sigterm(log)
        return _run(arguments[0], log)
    except StoppedError:
        log.warning("stopped by SIGTERM")
        return STOPPED


def _run(agent: str, log: Log) -> int:
    try:
        # Imported by name: a node's exporter should not pay for the modules of the others.
        status: int = importlib.import_module(AGENTS[agent]).start(os.environ, log)
    except AgentError as error:
        log.error(str(error))
        return 1
    return status


def _heed_sigterm(log: Log) -> None:
    """SIGTERM raises StoppedError in the main thread, once that is back in Python; what is not back in time, such as
    the resolution of a name, is ended with the process."""
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
        os._exit(status)  # a thread that hangs in a connection may abort a Python that ends in order
    raise SystemExit(status)
