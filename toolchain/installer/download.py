"""Official releases: fetched, compared with their published SHA-256, unpacked."""

import hashlib
import tarfile
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO
from zipfile import ZipFile

from toolchain.installer.console import Console
from toolchain.installer.errors import ToolchainError, UnavailableError
from toolchain.installer.tool import Release

CHUNK = 1 << 18
STALLED_SECONDS = 30
_OPENER = urllib.request.build_opener()  # honours the usual proxy variables


class Internet:
    """Whether releases can be had here: asked once a run, only if need be, and for no longer than three seconds."""

    def __init__(self, url: str = "https://github.com/", patience_seconds: float = 3) -> None:
        self._url = url
        self._patience_seconds = patience_seconds
        self._closed: str | None = None
        self._asked = False

    def require(self) -> None:
        """Raises UnavailableError if releases cannot be had."""
        if not self._asked:
            self._closed = self._ask()
            self._asked = True
        if self._closed is not None:
            raise UnavailableError(self._closed)

    def _ask(self) -> str | None:
        host = urllib.parse.urlsplit(self._url).netloc
        outcome = [f"{host} does not answer within {self._patience_seconds:g} s"]

        def knock() -> None:
            try:
                with _OPENER.open(self._url, timeout=self._patience_seconds):
                    outcome.clear()
            except (OSError, HTTPException) as error:
                outcome[0] = f"{host} cannot be reached ({_reason(error)})"

        # A thread, because a socket's timeout does not cover the look-up of the name, which can take half a minute.
        thread = threading.Thread(target=knock, daemon=True)
        thread.start()
        thread.join(self._patience_seconds)
        return next(iter(outcome), None)


def fetch(url: str, file: Path, console: Console) -> None:
    """Downloads to a file. Raises UnavailableError if the server cannot be reached or has no such thing."""
    try:
        with (
            console.step(f"download {url}") as tick,
            _OPENER.open(url, timeout=STALLED_SECONDS) as response,
            file.open("wb") as target,
        ):
            while chunk := response.read(CHUNK):
                target.write(chunk)
                tick()
    except (OSError, HTTPException) as error:
        raise UnavailableError(f"{url}: {_reason(error)}") from error


def take_release(release: Release, name: str, into: Path, console: Console) -> None:
    """Puts a release's programs into a folder. Raises UnavailableError if there is none, ToolchainError if wrong."""
    archive = into / PurePosixPath(release.url).name
    checksums = into / "checksums"
    fetch(release.checksums, checksums, console)
    fetch(release.url, archive, console)
    published = _published_digest(checksums.read_text(errors="replace"), archive.name)
    checksums.unlink()
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
    if not release.members:
        archive.rename(into / name).chmod(0o755)
        return
    _unpack(archive, release, into)
    archive.unlink()


def _unpack(archive: Path, release: Release, into: Path) -> None:
    missing = set(release.members)
    for path, content in _files(archive):
        wanted = {pattern for pattern in release.members if PurePosixPath(path).match(pattern)}
        if wanted:
            target = into / PurePosixPath(path).name
            target.write_bytes(content.read())
            target.chmod(0o755)
            missing -= wanted
    if missing:
        raise ToolchainError(f"{release.url} does not hold {', '.join(sorted(missing))}")


def _files(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if archive.suffix == ".zip":
        with ZipFile(archive) as zipped:
            for name in zipped.namelist():
                yield name, zipped.open(name)
    else:
        with tarfile.open(archive) as tarred:
            for member in tarred:
                content = tarred.extractfile(member) if member.isfile() else None
                if content is not None:
                    yield member.name, content


def _published_digest(text: str, name: str) -> str | None:
    """From a bare digest, or from sha256sum's lines `digest  [*]name`."""
    for words in map(str.split, text.splitlines()):
        if len(words) == 1 or (len(words) == 2 and words[1].lstrip("*./") == name):
            return words[0].lower()
    return None


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", error)  # urllib wraps what the system said
    return str(getattr(cause, "strerror", None) or cause)
