"""Writes the exporter's zipapp, for use on a machine without the toolchain.

The command `python -m tests.e2e.gpu.archive exporter.pyz` runs this module.
"""

import sys
from pathlib import Path

from components.base.zipapp import build_for_nodes

if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(build_for_nodes().content)
