"""Builds fake_nvml.c: a libnvidia-ml that returns the figures of a text file."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from toolchain.cluster.errors import ClusterError
from toolchain.cluster.paths import found

SOURCE = Path(__file__).with_name("fake_nvml.c")
LIBRARY = "libnvidia-ml.so.1"
_COMPILER = "cc"


@dataclass(frozen=True)
class FakeNvml:
    """The folder of the built library, and the text file from which the library reads its figures.

    fake_nvml.c describes the format of the text file.
    """

    folder: Path
    script: Path

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables with which a process loads the fake library and its text file."""
        return {"LD_LIBRARY_PATH": str(self.folder), "FAKE_NVML": str(self.script)}

    def show(self, *lines: str, status: int = 0) -> None:
        write(self.script, "\n".join((str(status), *lines)) + "\n")


def write(script: Path, text: str) -> None:
    """Replaces the text file in one step. A process that reads an incomplete file of figures would end with an
    error."""
    whole = script.with_suffix(".new")
    whole.write_text(text)
    whole.replace(script)


def can_build() -> bool:
    return found(_COMPILER) is not None


def build(folder: Path, *, old_driver: bool = False) -> None:
    """Builds the library into the folder. With `old_driver`, the library lacks the functions for memory limits.

    Raises ClusterError if the machine has no C compiler.
    """
    compiler = found(_COMPILER)
    if compiler is None:
        raise ClusterError("the simulated GPU needs a C compiler: python3 toolchain/install.py compiler")
    flags = ("-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *(("-DOLD_DRIVER",) if old_driver else ()))
    subprocess.run([compiler, *flags, "-o", folder / LIBRARY, SOURCE], check=True)
