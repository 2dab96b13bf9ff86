"""Builds programs from pinned Go modules, and copies files from pinned Go modules."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from toolchain.installer.console import run
from toolchain.installer.errors import ToolchainError
from toolchain.installer.pins import Module
from toolchain.installer.tool import ChangedModule, GoBuild, ModuleFiles

NO_DEBUG = "all=-dwarf=false"  # The Go compiler writes no debug information, because the linker would remove it anyway.
# The settings GOGC and GOMAXPROCS save a third of the compilers' CPU time. Go runs one compiler for each core, so each
# compiler needs only one thread.
FRUGAL = {"GOGC": "400", "GOMAXPROCS": "1"}


def build(wanted: GoBuild, into: Path, log: Path, path: str) -> None:
    """Builds the programs with the Go and the C compiler in `path`, and writes them into a folder."""
    cores = os.cpu_count() or 1
    linked = " ".join(f"-X {variable}={value}" for variable, value in wanted.stamps.items())
    if wanted.cgo:
        linked += " -extldflags=-Wl,-z,lazy"
    env = {**FRUGAL, **_environment(path), "CGO_ENABLED": str(int(wanted.cgo))}
    with TemporaryDirectory() as scratch:
        flags = [
            "-trimpath", "-mod=readonly", "-buildvcs=false", f"-tags={wanted.tags}", f"-gcflags={NO_DEBUG}",
            f"-ldflags=-s -w {linked}", f"-p={cores}", f"-overlay={_overlay(wanted, Path(scratch), path)}",
            f"-modfile={_modfile(wanted.changed, wanted.module, Path(scratch), path)}",
        ]  # fmt: skip
        for program, package in wanted.programs.items():
            command = ["go", "build", *flags, "-o", str(into / program), package]
            run(f"go build {program}", command, log, cwd=wanted.module.folder, env=env)


def copy_files(wanted: ModuleFiles, into: Path, path: str) -> None:
    """Copies files of a module, which Go has compared with go.sum, into a folder.

    Modules do not record file modes. Therefore this function makes a file executable if the file starts with #!.
    """
    module = f"{wanted.path}@v{wanted.module.version(wanted.path)}"
    done = subprocess.run(
        ["go", "mod", "download", "-json", module],  # noqa: S607 (from `path`)
        cwd=wanted.module.folder,
        env=_environment(path),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = " ".join((done.stdout + done.stderr).split())
        raise ToolchainError(f"{module} cannot be had: go mod download says: {said}")
    folder = Path(json.loads(done.stdout)["Dir"])
    for source, target in wanted.files.items():
        found = [file for file in (folder / source).rglob("*") if file.is_file()] or [folder / source]
        for file in found:
            copy = into / target / file.relative_to(folder / source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
            copy.chmod(0o755 if copy.read_bytes().startswith(b"#!") else 0o644)


def _overlay(wanted: GoBuild, scratch: Path, path: str) -> str:
    """Returns the path of an overlay file for `go build`, which adds the files of `embeds` to the module's folder. If
    there are no files to add, returns ""."""
    if wanted.embeds is None:
        return ""
    copy_files(wanted.embeds, scratch, path)
    shown = {str(wanted.module.folder / name): str(scratch / name) for name in wanted.embeds.files.values()}
    (scratch / "overlay.json").write_text(json.dumps({"Replace": shown}))
    return str(scratch / "overlay.json")


def _modfile(changed: ChangedModule | None, module: Module, scratch: Path, path: str) -> str:
    """Returns the path of a go.mod that names a changed copy of a module. If nothing is changed, returns ""."""
    if changed is None:
        return ""
    copy = scratch / "changed"
    copy_files(changed.files, copy, path)
    text = (copy / changed.file).read_text()
    for pattern, replacement in changed.changes.items():
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    (copy / changed.file).write_text(text)
    shutil.copy(module.folder / "go.sum", scratch)  # Go expects go.sum next to go.mod.
    own = (module.folder / "go.mod").read_text()
    (scratch / "go.mod").write_text(f"{own}\nreplace {changed.files.path} => {json.dumps(str(copy))}\n")
    return str(scratch / "go.mod")


def _environment(path: str) -> Mapping[str, str]:
    """Returns the user's environment variables, changed so that Go ignores any go.work file above the checkout."""
    return {**os.environ, "PATH": path, "GOWORK": "off"}
