"""`python -m gpumem`, and what `kubectl gpumem` runs."""

import sys

from gpumem.cli import run

if __name__ == "__main__":
    sys.exit(run())
