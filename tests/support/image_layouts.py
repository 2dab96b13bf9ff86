"""Writes image layouts of OCI, as bases of the agents' image."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(folder: Path, images: Mapping[str, Mapping[str, bytes]], *, python: str) -> Path:
    """Writes a layout with an image for each architecture, with these files, and an attestation."""
    (folder / "blobs" / "sha256").mkdir(parents=True)
    entries = [_image(folder, architecture, files, python) for architecture, files in images.items()]
    config = blob(folder, {"architecture": "unknown", "os": "unknown", "config": {}})
    entries.append(blob(folder, {"config": config, "layers": []}))
    index(folder, entries)
    return folder


def add_architecture(folder: Path, architecture: str) -> None:
    """Adds a copy of the layout's only image for another architecture."""
    (entry,) = json.loads((folder / "index.json").read_text())["manifests"]
    found = read(folder, entry)
    config = blob(folder, {**read(folder, found["config"]), "architecture": architecture})
    index(folder, [entry, blob(folder, {**found, "config": config})])


def index(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Writes the index. As by `skopeo copy --all`, its only entry is the index of the platforms."""
    inner = blob(folder, {"schemaVersion": 2, "manifests": entries})
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [inner]}))


def read(folder: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "blobs" / "sha256" / entry["digest"][7:]).read_text())
    return found


def blob(folder: Path, content: object) -> dict[str, Any]:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    digest = hashlib.sha256(data).hexdigest()
    (folder / "blobs" / "sha256" / digest).write_bytes(data)
    return {"digest": f"sha256:{digest}", "size": len(data)}


def _image(folder: Path, architecture: str, files: Mapping[str, bytes], python: str) -> dict[str, Any]:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": ["PATH=/usr/local/bin", f"PYTHON_VERSION={python}"]},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:0"]},
    }
    return blob(
        folder, {"config": blob(folder, config), "layers": [blob(folder, gzip.compress(packed.getvalue(), mtime=0))]}
    )
