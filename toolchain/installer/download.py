"""Downloads official releases, compares them with their published SHA-256, and unpacks them."""

import hashlib
import shutil
import tarfile
import urllib.parse
import urllib.request
from functools import cache
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from toolchain.installer.console import say
from toolchain.installer.errors import ToolchainError, UnavailableError
from toolchain.installer.tool import Release

CONNECT_SECONDS = 3
STALLED_SECONDS = 30
TRIED_FIRST = "https://github.com/"
_OPENER = urllib.request.build_opener()  # The opener uses the proxy that http_proxy and https_proxy name.


@cache
def why_not() -> str | None:
    """Returns the reason why this machine cannot download releases, or None if it can. Tries it once."""
    try:
        with _OPENER.open(TRIED_FIRST, timeout=CONNECT_SECONDS):
            return None
    except (OSError, HTTPException) as error:
        return f"{urllib.parse.urlsplit(TRIED_FIRST).netloc} cannot be reached ({_reason(error)})"


def take_release(release: Release, name: str, into: Path) -> None:
    """Puts the programs of a release into a folder.

    Raises UnavailableError if the release cannot be downloaded, and ToolchainError if its SHA-256 is wrong.
    """
    with TemporaryDirectory(dir=into) as folder:
        scratch = Path(folder)
        archive = scratch / PurePosixPath(release.url).name
        _fetch(release.checksums, scratch / "checksums")
        _fetch(release.url, archive)
        _verify(release, archive, (scratch / "checksums").read_text(errors="replace"))
        if not release.members:
            archive.rename(into / name).chmod(0o755)
            return
        if archive.suffix == ".zip" or not hasattr(tarfile, "data_filter"):
            shutil.unpack_archive(archive, scratch / "unpacked")
        else:
            shutil.unpack_archive(archive, scratch / "unpacked", filter="data")
        for file in (file for member in release.members for file in scratch.glob(f"unpacked/{member}")):
            file.rename(into / file.name).chmod(0o755)


def _fetch(url: str, file: Path) -> None:
    say(f"    download {url}")
    try:
        with _OPENER.open(url, timeout=STALLED_SECONDS) as response, file.open("wb") as target:
            shutil.copyfileobj(response, target)
    except (OSError, HTTPException) as error:
        raise UnavailableError(f"{url}: {_reason(error)}") from error


def _verify(release: Release, archive: Path, checksums: str) -> None:
    """Compares the archive with its line in a list as sha256sum writes it, or with the list's only digest."""
    lines = [line.split() for line in checksums.splitlines() if line.strip()]
    listed = [words[0] for words in lines if len(words) == 1 or words[1].lstrip("*./") == archive.name]
    if not listed:
        raise UnavailableError(f"{release.checksums} does not list {archive.name}")
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != listed[0].lower():
        raise ToolchainError(
            f"{release.url} has SHA-256 {found}, but {listed[0]} is published for it: refused, nothing was installed.\n"
            "A download that broke off looks the same: run it again. If it stays so, something between here and there"
            " changes the file."
        )


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", error)  # An error of urllib contains the system's error, which is more precise.
    return str(getattr(cause, "strerror", None) or cause)
