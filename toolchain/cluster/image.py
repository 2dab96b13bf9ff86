"""A container image without a registry: this machine's Python, as an OCI image layout.

Agents run under any Python with the standard library (components/system.py), so the one that runs here serves.
"""

import gzip
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from toolchain.cluster.paths import CHECKOUT

PAUSE = "docker.io/library/gpu-tenancy-pause:1"
_WITHOUT = {"site-packages", "test", "tests", "idlelib", "ensurepip", "turtledemo", "lib2to3", "tkinter", "__pycache__"}
_TIME_ZONES = Path("/usr/share/zoneinfo")
_PREFIX = Path("usr/local")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_TYPE = "application/vnd.oci.image"


def agent_image() -> str:
    """The image that the prod stack names."""
    stack = yaml.safe_load((CHECKOUT / "Pulumi.prod.yaml").read_text())
    image: str = stack["config"]["gpu-tenancy:cluster"]["agent_image"]
    return image


def write(archive: Path) -> None:
    """An OCI archive with two images of one layer: the agents', and one that does nothing, for the pods' sandboxes."""
    tar = _layer()
    packed = gzip.compress(tar, compresslevel=1, mtime=0)
    blobs = {_digest(packed): packed}

    def put(value: Any) -> dict[str, Any]:
        content = json.dumps(value).encode()
        blobs[_digest(content)] = content
        return {"digest": _digest(content), "size": len(content)}

    layer = {"mediaType": f"{_TYPE}.layer.v1.tar+gzip", "digest": _digest(packed), "size": len(packed)}
    manifests = []
    for name, entrypoint in (
        (agent_image(), ["python"]),
        (PAUSE, ["python", "-IS", "-c", "import signal; signal.pause()"]),
    ):
        config = {
            "architecture": _ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {"Env": ["PATH=/usr/local/bin"], "Entrypoint": entrypoint},
            "rootfs": {"type": "layers", "diff_ids": [_digest(tar)]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_TYPE}.manifest.v1+json",
            "config": {"mediaType": f"{_TYPE}.config.v1+json", **put(config)},
            "layers": [layer],
        }
        annotations = {"io.containerd.image.name": name}
        manifests.append({"mediaType": f"{_TYPE}.manifest.v1+json", **put(manifest), "annotations": annotations})
    with tarfile.open(archive, "w") as out:
        _add(out, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _add(out, "index.json", json.dumps({"schemaVersion": 2, "manifests": manifests}).encode())
        for digest, content in blobs.items():
            _add(out, f"blobs/sha256/{digest.removeprefix('sha256:')}", content)


def _layer() -> bytes:
    """Interpreter, standard library, and the shared libraries that they load; deterministic."""
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
        modules = sorted(_modules(library))
        for file in modules:
            _add(tar, str(_PREFIX / "lib" / library.name / file.relative_to(library)), file.read_bytes())
        for file in sorted(path for path in _TIME_ZONES.rglob("*") if path.is_file()):
            _add(tar, str(file).removeprefix("/"), file.read_bytes())
        binaries = [python, *(file for file in modules if file.suffix == ".so")]
        for file in sorted(_shared_libraries(binaries)):
            _add(tar, str(file).removeprefix("/"), file.read_bytes(), executable=True)
    return content.getvalue()


def _modules(library: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(library):
        folders[:] = [name for name in folders if name not in _WITHOUT and not name.startswith("config-")]
        wanted = (name for name in files if name.endswith((".py", ".so")) and not name.startswith("_tkinter"))
        yield from (Path(folder) / name for name in wanted)


def _shared_libraries(binaries: list[Path]) -> set[Path]:
    """What the dynamic loader would load for them, the loader itself included."""
    told = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout  # noqa: S607
    found = {Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", told, flags=re.MULTILINE)}
    # glibc loads it when a thread ends by pthread_exit; the images of Python have it.
    unwinders = {path.with_name("libgcc_s.so.1") for path in found if path.name == "libc.so.6"}
    return found | {path for path in unwinders if path.exists()}


def _add(tar: tarfile.TarFile, name: str, content: bytes, *, executable: bool = False) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o755 if executable else 0o644
    tar.addfile(entry, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
