"""Builds the cluster's container images, so that the cluster needs no registry.

The images contain the Python of this machine, or the installed kube-scheduler. Agents need only the standard library
(components/base/system.py), so any Python can run the agents.
"""

import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from toolchain.cluster import prod
from toolchain.cluster.paths import program

PAUSE = "docker.io/library/gpu-tenancy-pause:1"
# The agents import no module of these packages of the standard library.
_WITHOUT = {"site-packages", "test", "tests", "idlelib", "ensurepip", "turtledemo", "lib2to3", "tkinter"}
# Without the bytecode in the image, Python would need about half of an agent's run to compile the standard library.
_MODULES = (".py", ".so", f".{sys.implementation.cache_tag}.pyc")
_TIME_ZONES = Path("/usr/share/zoneinfo")
_PREFIX = Path("usr/local")
_OPENSSL = Path("/usr/bin/openssl")  # which the pods of the last release need, as in every image of Python
_SCHEDULER = "kube-scheduler"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_TYPE = "application/vnd.oci.image"


def agent_image() -> str:
    """Returns the name of the agents' image in the prod stack."""
    return prod.cluster_settings()["agent_image"]


@cache
def scheduler_image() -> str:
    """Returns the name of Kubernetes' image of kube-scheduler, in the installed version."""
    said = subprocess.run([program(_SCHEDULER), "--version"], capture_output=True, text=True, check=True).stdout
    return f"registry.k8s.io/{_SCHEDULER}:{said.split()[1]}"


@dataclass(frozen=True)
class _Image:
    """An image with a single layer. The layer of an image is a tar archive."""

    name: str
    layer: bytes
    entrypoint: Sequence[str]


def write(archive: Path) -> None:
    """Writes an OCI archive with three images: for the agents, for the scheduler, and for the pods' sandboxes."""
    python = _python_layer({})
    images = (
        _Image(agent_image(), python, ["python"]),
        _Image(PAUSE, python, ["python", "-IS", "-c", "import signal; signal.pause()"]),
        _Image(scheduler_image(), _scheduler_layer(), [_SCHEDULER]),
    )
    _write(archive, images)


def write_python(archive: Path, files: Mapping[str, bytes] | None = None) -> None:
    """Writes an OCI archive with the image for the agents alone. `files` maps paths to what the image has besides."""
    _write(archive, [_Image(agent_image(), _python_layer(files or {}), ["python"])])


def _write(archive: Path, images: Iterable[_Image]) -> None:
    blobs: dict[str, bytes] = {}
    manifests = [_manifest(image, blobs) for image in images]
    with tarfile.open(archive, "w") as out:
        _add(out, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _add(out, "index.json", json.dumps({"schemaVersion": 2, "manifests": manifests}).encode())
        for digest, content in blobs.items():
            _add(out, f"blobs/sha256/{digest.removeprefix('sha256:')}", content)


def _manifest(image: _Image, blobs: dict[str, bytes]) -> dict[str, Any]:
    """Returns the image's entry for the archive's index. Adds the image's content to `blobs`."""

    def put(kind: str, content: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        blobs[digest] = content
        return {"mediaType": f"{_TYPE}.{kind}", "digest": digest, "size": len(content)}

    layer = put("layer.v1.tar", image.layer)
    config = {
        "architecture": _ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/bin:/usr/bin", f"PYTHON_VERSION={platform.python_version()}"],
            "Entrypoint": image.entrypoint,
        },
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": put("config.v1+json", json.dumps(config).encode()),
        "layers": [layer],
    }
    name = {"io.containerd.image.name": image.name}
    return {**put("manifest.v1+json", json.dumps(manifest).encode()), "annotations": name}


def _scheduler_layer() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, f"usr/local/bin/{_SCHEDULER}", Path(program(_SCHEDULER)).read_bytes(), executable=True)
    return content.getvalue()


def _python_layer(more: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    python = Path(os.path.realpath(sys.executable))
    library = Path(sysconfig.get_path("stdlib"))
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for folder, mode in (("tmp", 0o1777), ("etc", 0o755)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        _add(tar, "usr/local/bin/python", python.read_bytes(), executable=True)
        _add(tar, "etc/passwd", b"root:x:0:0::/:\nnonroot:x:65532:65532::/:\n")
        for path, file_content in more.items():
            _add(tar, path.removeprefix("/"), file_content)
        modules = sorted(_modules(library))
        for file in modules:
            name = str(_PREFIX / "lib" / library.name / file.relative_to(library))
            # Python uses the bytecode only if the source's modification time equals the time in the bytecode.
            _add(tar, name, file.read_bytes(), modified=int(file.stat().st_mtime))
        for file in sorted(path for path in _TIME_ZONES.rglob("*") if path.is_file()):
            _add(tar, str(file).removeprefix("/"), file.read_bytes())
        openssl, settings = _openssl()
        _add(tar, str(_OPENSSL).removeprefix("/"), openssl.read_bytes(), executable=True)
        _add(tar, str(_openssl_settings(openssl)).removeprefix("/"), settings.read_bytes())
        binaries = [python, openssl, *(file for file in modules if file.suffix == ".so")]
        for file in sorted(_shared_libraries(binaries)):
            _add(tar, str(file).removeprefix("/"), file.read_bytes(), executable=True)
    return content.getvalue()


def _openssl() -> tuple[Path, Path]:
    """Returns the program openssl and its configuration file. The installer may have unpacked both."""
    program = Path(os.path.realpath(shutil.which("openssl") or _OPENSSL))
    unpacked = program.parent / "usr" / "bin" / "openssl"
    if unpacked.exists():
        return unpacked, program.parent / "etc" / "ssl" / "openssl.cnf"
    return program, _openssl_settings(program)


def _openssl_settings(openssl: Path) -> Path:
    """Returns the path where the program looks for its configuration."""
    said = subprocess.run([openssl, "version", "-d"], capture_output=True, text=True, check=True).stdout
    return Path(said.split('"')[1]) / "openssl.cnf"


def _modules(library: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(library):
        folders[:] = [name for name in folders if name not in _WITHOUT and not name.startswith("config-")]
        wanted = (name for name in files if name.endswith(_MODULES) and not name.startswith("_tkinter"))
        yield from (Path(folder) / name for name in wanted)


def _shared_libraries(binaries: list[Path]) -> set[Path]:
    said = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout  # noqa: S607
    found = {Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", said, flags=re.MULTILINE)}
    # glibc loads libgcc_s when a thread ends by pthread_exit. Therefore the image needs the library libgcc_s. Python's
    # official images contain the library libgcc_s.
    unwinders = {path.with_name("libgcc_s.so.1") for path in found if path.name == "libc.so.6"}
    return found | {path for path in unwinders if path.exists()}


def _add(tar: tarfile.TarFile, name: str, content: bytes, *, executable: bool = False, modified: int = 0) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), 0o755 if executable else 0o644, modified
    tar.addfile(entry, io.BytesIO(content))
