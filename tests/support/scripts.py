"""Writes scripts for tests, and makes a PATH with only a few programs."""

import os
import shutil
from pathlib import Path


def script(file: Path, body: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return file


def system_programs(folder: Path, *more: str) -> Path:
    folder.mkdir()
    for program in ("sh", "env", "chmod", "cat", "mkdir", "touch", *more):
        found = shutil.which(program, path=os.defpath)
        assert found is not None
        (folder / program).symlink_to(found)
    return folder
