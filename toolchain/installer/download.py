"""Downloads official releases, compares them with their published SHA-256, and unpacks them."""

import hashlib
import shutil
import tarfile
import urllib.parse
import urllib.request
from functools import cached_property
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from toolchain.installer.console import Console
from toolchain.installer.errors import ToolchainError, UnavailableError
from toolchain.installer.tool import Release

CONNECT_SECONDS = 3
STALLED_SECONDS = 30
_OPENER = urllib.request.build_opener()  # The opener uses the proxy that http_proxy and https_proxy name.


class Internet:
    """Reports whether this machine can download releases. The installer tests the connection only once."""

    def __init__(self, url: str = "https://github.com/") -> None:
        self._url = url

    @cached_property
    def closed(self) -> str | None:
        """The reason why this machine cannot download releases, or None if it can."""
        try:
            with _OPENER.open(self._url, timeout=CONNECT_SECONDS):
                return None
        except (OSError, HTTPException) as error:
            return f"{urllib.parse.urlsplit(self._url).netloc} cannot be reached ({_reason(error)})"


def fetch(url: str, file: Path, console: Console) -> None:
    """Downloads a URL into a file.

    Raises UnavailableError if the server cannot be reached or does not have the file.
    """
    console.line(f"    download {url}")
    try:
        with _OPENER.open(url, timeout=STALLED_SECONDS) as response, file.open("wb") as target:
            shutil.copyfileobj(response, target)
    except (OSError, HTTPException) as error:
        raise UnavailableError(f"{url}: {_reason(error)}") from error


def take_release(release: Release, name: str, into: Path, console: Console) -> None:
    """Puts the programs of a release into a folder.

    Raises UnavailableError if the release cannot be downloaded, and ToolchainError if its SHA-256 is wrong.
    """
    with TemporaryDirectory(dir=into) as folder:
        scratch = Path(folder)
        archive = scratch / PurePosixPath(release.url).name
        fetch(release.checksums, scratch / "checksums", console)
        fetch(release.url, archive, console)
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


def _verify(release: Release, archive: Path, checksums: str) -> None:
    published = _published_digest(checksums, archive.name)
    if published is None:
        raise UnavailableError(f"{release.checksums} does not list {archive.name}")
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != published:
        raise ToolchainError(
            f"{release.url} has SHA-256 {found}, but {published} is published for it: refused, nothing was installed.\n"
            "A download that broke off looks the same: run it again. If it stays so, something between here and there"
            " changes the file."
        )


def _published_digest(text: str, name: str) -> str | None:
    """Returns the digest of the named file from a list of checksums, or None if the list lacks the file.

    The list contains lines as sha256sum writes them (`digest  [*]name`), or only one digest.
    """
    for words in map(str.split, text.splitlines()):
        if len(words) == 1 or (len(words) == 2 and words[1].lstrip("*./") == name):
            return words[0].lower()
    return None


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", error)  # An error of urllib contains the system's error, which is more precise.
    return str(getattr(cause, "strerror", None) or cause)
