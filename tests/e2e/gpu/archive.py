"""Writes the exporter as one file that runs without the toolchain (`python -m tests.e2e.gpu.archive exporter.pyz`)."""

import sys
from pathlib import Path

from components.base.zipapp import build_for_nodes

if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(build_for_nodes().content)
