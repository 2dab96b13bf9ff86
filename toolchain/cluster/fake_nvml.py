"""libnvidia-ml as a shared object that shows what somebody writes: fake_nvml.c, built."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
LIBRARY = "libnvidia-ml.so.1"


@dataclass(frozen=True)
class FakeNvml:
    """The folder of the built library, and the file that says what it shows (see fake_nvml.c)."""

    folder: Path
    script: Path

    @property
    def environ(self) -> dict[str, str]:
        """For a process that is to load it."""
        return {"LD_LIBRARY_PATH": str(self.folder), "FAKE_NVML": str(self.script)}

    def show(self, *lines: str, status: int = 0) -> None:
        write(self.script, "\n".join((str(status), *lines)) + "\n")


def write(script: Path, text: str) -> None:
    """Whole or not at all: a process that reads a part of it ends."""
    whole = script.with_suffix(".new")
    whole.write_text(text)
    whole.replace(script)


def build(folder: Path, *, old_driver: bool = False) -> bool:
    """Builds the library into the folder; whether there is a compiler to do it. `old_driver`: one without limits."""
    compiler = shutil.which("cc")
    if compiler is not None:
        flags = ("-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *(("-DOLD_DRIVER",) if old_driver else ()))
        subprocess.run([compiler, *flags, "-o", folder / LIBRARY, SOURCE], check=True)
    return compiler is not None
