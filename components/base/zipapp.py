"""Packs the agents' code into one zipapp. The same sources get the same ConfigMap name on every machine."""

import base64
import hashlib
import io
import re
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pulumi

from tenancy import names
from tenancy.units import MIB

CHECKOUT = Path(__file__).resolve().parents[2]
# limit of a ConfigMap, 1 MiB (MaxSecretSize, pkg/apis/core/types.go), minus 16 KiB for its keys
LIMIT_BYTES = MIB - 2**14

# The exporter needs the Python package nvidia-ml-py, which consists of one module.
_NVML, _NVML_MODULE = "nvidia-ml-py", "pynvml.py"
_PACKAGES = ("agents", "tenancy")
# The prefix of our packages' imports in the wheel (toolchain/wheel.py). In a checkout, the prefix of imports is empty.
_WITHIN = __name__.removesuffix("components.base.zipapp").encode()
# The packages of the agents that run in privileged pods. The pods of privileged agents contain no other agent's code.
_ON_NODES = {"exporter", "guard"}
_LOCK = "requirements.lock"
_MAIN = """import runpy

runpy.run_module("{}", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Zipapp:
    """A zip archive that `python` can run. `digest` is the SHA-256 of the archive's files, in hex."""

    content: bytes
    digest: str

    @property
    def config_map(self) -> str:
        """Returns the name of the ConfigMap with the agents' code. The name changes with the code, so that no pod runs
        old and new code together."""
        return f"{names.AGENTS}-{self.digest[:10]}"

    @property
    def image_path(self) -> str:
        """Returns the path of the code in the agents' image. The path changes with the code, so that a pod does not
        start from an image with other code."""
        return f"{names.AGENTS_DIRECTORY}/{self.config_map}.pyz"


def build(root: Path = CHECKOUT) -> Zipapp:
    """Builds the zipapp of all agents in the checkout at `root`. Raises pulumi.RunError if a ConfigMap cannot hold the
    zipapp."""
    return _zipapp(_sources(root))


def build_for_nodes(root: Path = CHECKOUT) -> Zipapp:
    """Builds the zipapp of the agents in privileged pods, with NVML's bindings.

    Like `build`, raises pulumi.RunError if a ConfigMap cannot hold the zipapp, and also if the installed bindings are
    not those in requirements.lock.
    """
    others = {each.parent.name for each in (root / "agents").glob("*/main.py")} - _ON_NODES
    return _zipapp({**_sources(root, without=others), _NVML_MODULE: _bindings(root)})


def build_for_board(root: Path = CHECKOUT) -> Zipapp:
    """Builds the zipapp of the board, with the code of kubectl gpumem and without the agents in privileged pods. Raises
    pulumi.RunError if a ConfigMap cannot hold the zipapp."""
    return _zipapp(_sources(root, without=_ON_NODES, packages=(*_PACKAGES, "gpumem")), main="gpumem.board_pod")


def _sources(root: Path, without: Collection[str] = (), packages: Collection[str] = _PACKAGES) -> dict[str, bytes]:
    paths = sorted(path for package in packages for path in (root / package).rglob("*.py"))
    shipped = (path for path in paths if path.relative_to(root).parts[1] not in without)
    return {path.relative_to(root).as_posix(): path.read_bytes().replace(_WITHIN, b"") for path in shipped}


def _zipapp(sources: Mapping[str, bytes], main: str = "agents") -> Zipapp:
    members = {"__main__.py": _MAIN.format(main).encode(), **sources}
    content = _archive(members, zipfile.ZIP_DEFLATED)
    if len(content) > LIMIT_BYTES:
        raise pulumi.RunError(
            f"the agents' code takes {len(content)} bytes and a ConfigMap holds {LIMIT_BYTES}; make agents/ smaller"
        )
    return Zipapp(content, digest(members))


def digest(members: Mapping[str, bytes]) -> str:
    """Returns the SHA-256, in hex, of an archive of these files. The archive is not compressed, because different
    builds of zlib give different bytes.
    """
    return hashlib.sha256(_archive(members, zipfile.ZIP_STORED)).hexdigest()


def _bindings(root: Path) -> bytes:
    """Returns the installed module of NVML's bindings. The module must have the locked version, and must be unchanged
    since its installation."""
    locked = re.search(rf"^{_NVML}==(\S+)", (root / _LOCK).read_text(encoding="utf-8"), re.MULTILINE)
    installed = metadata.distribution(_NVML)
    if locked is None or installed.version != locked[1]:
        raise pulumi.RunError(f"{_NVML} {installed.version} is installed, not the locked version; run make toolchain")
    (recorded,) = (file for file in installed.files or () if str(file) == _NVML_MODULE)
    content = Path(str(recorded.locate())).read_bytes()
    found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    if recorded.hash is None or (recorded.hash.mode, recorded.hash.value) != ("sha256", found):
        raise pulumi.RunError(f"{_NVML_MODULE} of {_NVML} was changed after its installation; run make clean toolchain")
    return content


def _archive(members: Mapping[str, bytes], compression: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            member.create_system = 3  # The entries of the archive are marked as created on Unix, even on Windows.
            member.external_attr = 0o644 << 16
            archive.writestr(member, content, compression)
    return buffer.getvalue()
