"""`python -m gpumem`."""

import sys

from gpumem.cli import run

if __name__ == "__main__":
    sys.exit(run())
