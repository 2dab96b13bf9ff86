"""Writes scripts for tests, and makes a PATH that hides most programs of this machine."""

import os
import shutil
from pathlib import Path


def script(file: Path, body: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return file


def system_programs(folder: Path, *more: str) -> Path:
    """Returns a folder for PATH with the few system programs that scripts need.

    With this PATH, tests find no other program of this machine.
    """
    folder.mkdir()
    for program in ("sh", "env", "chmod", "cat", "mkdir", "touch", *more):
        found = shutil.which(program, path=os.defpath)
        assert found is not None
        (folder / program).symlink_to(found)
    return folder
