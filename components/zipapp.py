"""The agents' code as one zipapp: the same bytes from the same sources, on every machine."""

import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pulumi

from tenancy import names

CHECKOUT = Path(__file__).resolve().parent.parent
LIMIT_BYTES = 2**20 - 2**14  # a ConfigMap holds 1 MiB (MaxSecretSize, pkg/apis/core/types.go); the rest is for its keys

_PACKAGES = ("agents", "tenancy")
_MAIN = """import runpy

runpy.run_module("agents", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Zipapp:
    """A zip archive that `python` runs."""

    content: bytes

    @cached_property
    def digest(self) -> str:
        """The content's SHA-256 in hex."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def config_map(self) -> str:
        """The ConfigMap that carries it: another content has another name, so that no pod ever runs a mixture."""
        return f"{names.AGENTS}-{self.digest[:10]}"


def build(root: Path = CHECKOUT) -> Zipapp:
    """The zipapp of the agents in the checkout at `root`. Raises pulumi.RunError when no ConfigMap could hold it."""
    sources = sorted(path for package in _PACKAGES for path in (root / package).rglob("*.py"))
    members = {path.relative_to(root).as_posix(): path.read_bytes() for path in sources}
    content = _archive({"__main__.py": _MAIN.encode(), **members})
    if len(content) > LIMIT_BYTES:
        raise pulumi.RunError(
            f"the agents' code takes {len(content)} bytes and a ConfigMap holds {LIMIT_BYTES}; make agents/ smaller"
        )
    return Zipapp(content)


def _archive(members: dict[str, bytes]) -> bytes:
    """Stored, not deflated: zlib and its forks pack the same source into different bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            member.create_system = 3  # Unix, also where the archive is made on Windows
            member.external_attr = 0o644 << 16
            archive.writestr(member, content)
    return buffer.getvalue()
