"""The agents' code as one zipapp: the same name from the same sources, on every machine."""

import base64
import hashlib
import io
import re
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pulumi

from tenancy import names
from tenancy.units import MIB

CHECKOUT = Path(__file__).resolve().parents[2]
LIMIT_BYTES = MIB - 2**14  # a ConfigMap holds 1 MiB (MaxSecretSize, pkg/apis/core/types.go); the rest is for its keys

# What the exporter needs in addition to the standard library: the distribution, and its modules that are shipped.
NVML: Mapping[str, Sequence[str]] = {"nvidia-ml-py": ("pynvml.py",)}

_PACKAGES = ("agents", "tenancy")
# What the wheel puts before our packages in every import (toolchain/wheel.py); nothing in a checkout.
_WITHIN = __name__.removesuffix("components.base.zipapp").encode()
# The agents that no DaemonSet runs, by package: a privileged pod has no code that it does not need.
_NOT_ON_NODES = ("extender", "gate", "reconcile", "watchdog")
_LOCK = "requirements.lock"
_MAIN = """import runpy

runpy.run_module("agents", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Zipapp:
    """A zip archive that `python` runs. `digest` is the SHA-256 of what it holds, in hex."""

    content: bytes
    digest: str

    @property
    def config_map(self) -> str:
        """The ConfigMap that carries it: other code has another name, so that no pod ever runs a mixture."""
        return f"{names.AGENTS}-{self.digest[:10]}"


def build_for_nodes(root: Path = CHECKOUT) -> Zipapp:
    """The zipapp of the agents that every node runs, with NVML's bindings. Raises as `build` does."""
    return build(root, NVML, _NOT_ON_NODES)


def build(
    root: Path = CHECKOUT, vendored: Mapping[str, Sequence[str]] | None = None, without: Collection[str] = ()
) -> Zipapp:
    """The zipapp of the agents in the checkout at `root`, with modules of the `vendored` distributions next to them and
    `without` these agents.

    Raises pulumi.RunError when a distribution is not the one that the checkout locks, and when no ConfigMap could hold
    the archive.
    """
    sources = sorted(path for package in _PACKAGES for path in (root / package).rglob("*.py"))
    shipped = (path for path in sources if path.relative_to(root).parts[1] not in without)
    members = {path.relative_to(root).as_posix(): path.read_bytes().replace(_WITHIN, b"") for path in shipped}
    for distribution, modules in (vendored or {}).items():
        members |= _vendored(root, distribution, modules)
    members = {"__main__.py": _MAIN.encode(), **members}
    content = _archive(members, zipfile.ZIP_DEFLATED)
    if len(content) > LIMIT_BYTES:
        raise pulumi.RunError(
            f"the agents' code takes {len(content)} bytes and a ConfigMap holds {LIMIT_BYTES}; make agents/ smaller"
        )
    return Zipapp(content, digest(members))


def digest(members: Mapping[str, bytes]) -> str:
    """The SHA-256, in hex, of an archive of these files: stored, since zlib and its forks deflate the same source into
    different bytes."""
    return hashlib.sha256(_archive(members, zipfile.ZIP_STORED)).hexdigest()


def _vendored(root: Path, distribution: str, modules: Sequence[str]) -> dict[str, bytes]:
    """Modules of an installed distribution: of the version that the lock file proves by hash, unchanged since."""
    lock = (root / _LOCK).read_text(encoding="utf-8")
    locked = re.search(rf"^{re.escape(distribution)}==(\S+)", lock, re.MULTILINE)
    try:
        installed = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        raise pulumi.RunError(f"{distribution} is not installed; run make toolchain") from None
    if locked is None or installed.version != locked[1]:
        wanted = locked[1] if locked else "nothing"
        raise pulumi.RunError(
            f"{distribution} {installed.version} is installed, {_LOCK} says {wanted}; run make toolchain"
        )
    recorded = {file.name: file for file in installed.files or () if len(file.parts) == 1}
    members = {}
    for module in modules:
        file = recorded[module]
        content = Path(str(file.locate())).read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        if file.hash is None or (file.hash.mode, file.hash.value) != ("sha256", digest):
            raise pulumi.RunError(f"{module} of {distribution} is not as it was installed; run make clean toolchain")
        members[module] = content
    return members


def _archive(members: Mapping[str, bytes], compression: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            member.create_system = 3  # Unix, also where the archive is made on Windows
            member.external_attr = 0o644 << 16
            archive.writestr(member, content, compression)
    return buffer.getvalue()
