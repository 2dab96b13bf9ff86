"""Builds programs from pinned Go modules, and copies files from pinned Go modules."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile, is_zipfile

from toolchain.installer.console import Console
from toolchain.installer.download import fetch
from toolchain.installer.errors import ToolchainError, UnavailableError
from toolchain.installer.pins import Module
from toolchain.installer.tool import ChangedModule, GoBuild, ModuleFiles

PUBLIC_PROXY = "https://proxy.golang.org"
NO_DEBUG = "all=-dwarf=false"  # The Go compiler writes no debug information, because the linker would remove it anyway.
# The settings GOGC and GOMAXPROCS save a third of the compilers' CPU time. Go runs one compiler for each core, so each
# compiler needs only one thread.
FRUGAL = {"GOGC": "400", "GOMAXPROCS": "1"}


def build(wanted: GoBuild, into: Path, console: Console, log: Path, installed: Path) -> None:
    """Builds the programs and writes them into a folder.

    The machine's own Go and C compiler come before the ones in the folder `installed`.
    """
    cores = os.cpu_count() or 1
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), str(installed)))
    linked = " ".join(f"-X {variable}={value}" for variable, value in wanted.stamps.items())
    if wanted.cgo:
        linked += " -extldflags=-Wl,-z,lazy"
    with TemporaryDirectory() as scratch:
        flags = [
            "-trimpath", "-mod=readonly", "-buildvcs=false", f"-tags={wanted.tags}", f"-gcflags={NO_DEBUG}",
            f"-ldflags=-s -w {linked}", f"-p={cores}", f"-overlay={_overlay(wanted, Path(scratch), console)}",
            f"-modfile={_modfile(wanted.changed, wanted.module, Path(scratch), console)}",
        ]  # fmt: skip
        for program, package in wanted.programs.items():
            command = ["go", "build", *flags, "-o", str(into / program), package]
            env = {**FRUGAL, **_environment(cgo=wanted.cgo), "PATH": path}
            console.run(f"go build {program}", command, log, cwd=wanted.module.folder, env=env)


def copy_files(wanted: ModuleFiles, into: Path, console: Console) -> None:
    """Copies files of a module into a folder.

    Modules do not record file modes. Therefore this function makes a file executable if the file starts with #!.
    """
    with TemporaryDirectory() as scratch:
        folder = _module_folder(wanted, Path(scratch), console)
        for source, target in wanted.files.items():
            found = [file for file in (folder / source).rglob("*") if file.is_file()] or [folder / source]
            for file in found:
                copy = into / target / file.relative_to(folder / source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                try:
                    shutil.copyfile(file, copy)
                except OSError:
                    raise ToolchainError(f"{source} is not in the module {wanted.path}") from None
                copy.chmod(0o755 if copy.read_bytes().startswith(b"#!") else 0o644)


def h1(file: Path) -> str:
    """Returns the checksum of a module's zip, in the form of go.sum (Hash1 in golang.org/x/mod/sumdb/dirhash)."""
    with ZipFile(file) as archive:
        lines = [f"{hashlib.sha256(archive.read(name)).hexdigest()}  {name}\n" for name in sorted(archive.namelist())]
    return "h1:" + b64encode(hashlib.sha256("".join(lines).encode()).digest()).decode()


def _module_folder(wanted: ModuleFiles, scratch: Path, console: Console) -> Path:
    """Returns the folder with the module's files.

    If Go is installed, Go downloads the module and compares it with go.sum. Without Go, the function downloads the zip
    from a module proxy and compares it with go.sum.
    """
    version = wanted.module.version(wanted.path)
    if shutil.which("go"):
        command = ["go", "mod", "download", "-json", f"{wanted.path}@{version}"]
        env = _environment()
        done = subprocess.run(command, cwd=wanted.module.folder, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            said = " ".join((done.stdout + done.stderr).split())
            raise ToolchainError(f"{wanted.path} cannot be had: go mod download says: {said}")
        return Path(json.loads(done.stdout)["Dir"])
    proxies = [proxy for proxy in re.split("[,|]", os.environ.get("GOPROXY", PUBLIC_PROXY)) if "://" in proxy]
    path = re.sub(
        "[A-Z]", lambda capital: "!" + capital[0].lower(), wanted.path
    )  # The protocol of module proxies requires module names in this form.
    try:
        if not proxies:
            raise UnavailableError("GOPROXY names no module proxy")
        fetch(f"{proxies[0].rstrip('/')}/{path}/@v/{version}.zip", scratch / "zip", console)
    except UnavailableError as closed:
        raise ToolchainError(f"{wanted.path} cannot be had: Go is not installed; {closed}") from None
    found, expected = h1(scratch / "zip") if is_zipfile(scratch / "zip") else "no zip", wanted.module.h1(wanted.path)
    if found != expected:
        raise ToolchainError(f"{wanted.path}: the module proxy served {found}, go.sum says {expected}: refused")
    with ZipFile(scratch / "zip") as archive:
        archive.extractall(scratch)
    return scratch / f"{wanted.path}@{version}"


def _overlay(wanted: GoBuild, scratch: Path, console: Console) -> str:
    """Returns the path of an overlay file for `go build`.

    The overlay adds the files of `embeds` to the module's folder. If there are no files to add, returns "".
    """
    if wanted.embeds is None:
        return ""
    copy_files(wanted.embeds, scratch, console)
    shown = {str(wanted.module.folder / name): str(scratch / name) for name in wanted.embeds.files.values()}
    (scratch / "overlay.json").write_text(json.dumps({"Replace": shown}))
    return str(scratch / "overlay.json")


def _modfile(changed: ChangedModule | None, module: Module, scratch: Path, console: Console) -> str:
    """Returns the path of a go.mod that names a changed copy of a module. If nothing is changed, returns ""."""
    if changed is None:
        return ""
    copy = scratch / "changed"
    copy_files(changed.files, copy, console)
    text = (copy / changed.file).read_text()
    for pattern, replacement in changed.changes.items():
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    (copy / changed.file).write_text(text)
    shutil.copy(module.folder / "go.sum", scratch)  # Go expects go.sum next to go.mod.
    own = (module.folder / "go.mod").read_text()
    (scratch / "go.mod").write_text(f"{own}\nreplace {changed.files.path} => {json.dumps(str(copy))}\n")
    return str(scratch / "go.mod")


def _environment(*, cgo: bool = False) -> Mapping[str, str]:
    """Returns the user's environment variables, changed so that Go ignores any go.work file above the checkout."""
    return {**os.environ, "CGO_ENABLED": str(int(cgo)), "GOWORK": "off"}
