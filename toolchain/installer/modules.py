"""Takes files out of a pinned Go module. The checksum in go.sum proves the zip, so it does not matter who serves it."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from base64 import b64encode
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile, is_zipfile

from toolchain.installer.console import Console
from toolchain.installer.download import fetch
from toolchain.installer.errors import ToolchainError, UnavailableError
from toolchain.installer.tool import ModuleFiles

PUBLIC_PROXY = "https://proxy.golang.org"


def copy_files(wanted: ModuleFiles, into: Path, console: Console) -> None:
    """Copies the module's files into a folder. A module has no modes: what starts with #! becomes executable."""
    expected = wanted.module.h1(wanted.path)
    with TemporaryDirectory() as scratch:
        file = _module_zip(wanted, Path(scratch) / "module.zip", console)
        found = h1(file) if is_zipfile(file) else "no zip"
        if found != expected:
            raise ToolchainError(f"{wanted.path}: the module proxy served {found}, go.sum says {expected}: refused")
        _extract(wanted, file, into)


def h1(file: Path) -> str:
    """The checksum of a module's zip as go.sum holds it: golang.org/x/mod/sumdb/dirhash, Hash1."""
    with ZipFile(file) as archive:
        lines = [f"{hashlib.sha256(archive.read(name)).hexdigest()}  {name}\n" for name in sorted(archive.namelist())]
    return "h1:" + b64encode(hashlib.sha256("".join(lines).encode()).digest()).decode()


def _extract(wanted: ModuleFiles, file: Path, into: Path) -> None:
    with ZipFile(file) as archive:
        prefix = f"{wanted.path}@{wanted.module.version(wanted.path)}/"
        for source, target in wanted.files.items():
            names = [name for name in archive.namelist() if _is_within(name, prefix + source)]
            if not names:
                raise ToolchainError(f"{prefix}{source} is not in the module")
            for name in names:
                copy = into / (target + name.removeprefix(prefix + source))
                copy.parent.mkdir(parents=True, exist_ok=True)
                content = archive.read(name)
                copy.write_bytes(content)
                copy.chmod(0o755 if content.startswith(b"#!") else 0o644)


def _module_zip(wanted: ModuleFiles, archive: Path, console: Console) -> Path:
    try:
        return _zip_from_go(wanted)
    except UnavailableError as no_go:
        try:
            return _zip_from_proxy(wanted, archive, console)
        except UnavailableError as no_proxy:
            raise ToolchainError(f"{wanted.path} cannot be had: {no_go}; {no_proxy}") from None


def _is_within(name: str, wanted: str) -> bool:
    return name.startswith(wanted) if wanted.endswith("/") else name == wanted


def _zip_from_go(wanted: ModuleFiles) -> Path:
    """Go's own copy, fetched if need be: Go knows the user's proxies, logins and module cache."""
    go = shutil.which("go")
    if go is None:
        raise UnavailableError("Go is not installed")
    done = subprocess.run(
        [go, "mod", "download", "-json", f"{wanted.path}@{wanted.module.version(wanted.path)}"],
        cwd=wanted.module.folder,
        env={**os.environ, "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise UnavailableError(f"go mod download says: {' '.join((done.stdout + done.stderr).split())}")
    return Path(json.loads(done.stdout)["Zip"])


def _zip_from_proxy(wanted: ModuleFiles, archive: Path, console: Console) -> Path:
    proxies = [proxy for proxy in re.split("[,|]", os.environ.get("GOPROXY", PUBLIC_PROXY)) if "://" in proxy]
    if not proxies:
        raise UnavailableError("GOPROXY names no module proxy")
    path = re.sub("[A-Z]", lambda capital: "!" + capital[0].lower(), wanted.path)  # the proxy protocol's spelling
    fetch(f"{proxies[0].rstrip('/')}/{path}/@v/{wanted.module.version(wanted.path)}.zip", archive, console)
    return archive
