#!/usr/bin/env python3
"""Installs the pinned command-line tools into .toolchain: python3 toolchain/install.py [group ...]"""

import sys
from pathlib import Path

OLDEST_PYTHON = (3, 11)


def main() -> int:
    # The installer checks the version of Python before its imports, because an older Python cannot parse the imported
    # modules.
    if sys.version_info < OLDEST_PYTHON:
        found = ".".join(map(str, sys.version_info[:3]))
        print(f"toolchain: Python 3.11 or newer is needed, {sys.executable} is {found}", file=sys.stderr)
        return 1
    checkout = Path(__file__).resolve().parent.parent
    sys.path[0] = str(checkout)
    from toolchain.installer.cli import run  # noqa: PLC0415

    return run(checkout, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
