"""`python -m agents <agent>`: runs one agent until its work is done, SIGTERM comes or an error ends it.

Exit status: 0 done, 1 an error that the log names, 2 no such agent, 143 stopped by SIGTERM before the work was done.
"""

import importlib
import os
import signal
import sys
from types import FrameType

from agents.errors import AgentError, StoppedError
from agents.log import Log

AGENTS = ("reconcile", "watchdog", "gate", "exporter")


def main(argv: list[str] | None = None) -> int:
    """The exit status of the agent that `argv` names."""
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1 or arguments[0] not in AGENTS:
        print(f"name one agent of {', '.join(AGENTS)} (got {' '.join(arguments) or 'nothing'})", file=sys.stderr)
        return 2
    log = Log(arguments[0], sys.stdout)
    signal.signal(signal.SIGTERM, _stop)
    try:
        # Imported by name: a node's exporter should not pay for the modules of the others.
        status: int = importlib.import_module(f"agents.{arguments[0]}").start(os.environ, log)
    except AgentError as error:
        log.error(str(error))
        return 1
    except StoppedError:
        log.warning("stopped by SIGTERM")
        return 128 + signal.SIGTERM
    return status


def _stop(number: int, frame: FrameType | None) -> None:
    raise StoppedError


if __name__ == "__main__":
    raise SystemExit(main())
