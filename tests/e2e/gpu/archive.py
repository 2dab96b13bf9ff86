"""The exporter's zipapp as a file, for a machine without the toolchain: `python -m tests.gpu.archive exporter.pyz`."""

import sys
from pathlib import Path

from components.zipapp import NVML, build

if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(build(vendored=NVML).content)
