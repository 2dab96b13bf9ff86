"""Builds the agents' image: a Python image, and a layer with the agents' code and with bytecode.

The base and the result are image layouts of OCI. The build runs without a container engine. The layer is for every
architecture. The build's Python compiles the code and the base's standard library, because the official Python images
have no bytecode (docs/adr/0007-glibc-agents.md).
"""

import gzip
import hashlib
import io
import json
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from components.base import zipapp
from components.base.zipapp import Zipapp
from toolchain import plugin
from toolchain.cluster.image import WITHOUT

PLATFORMS = ("linux/amd64", "linux/arm64")
NAME = "gpu-tenancy-agents"
_OCI = "application/vnd.oci.image"
_INDEX, _BLOBS = "index.json", PurePosixPath("blobs", "sha256")
_NVML = "nvidia-ml-py"
_PACKAGES = "var/lib/dpkg/status"
_PACKAGE = re.compile(r"^Package: (\S+)$.*?^Version: (\S+)$", re.DOTALL | re.MULTILINE)


class ImageError(Exception):
    """Raised if the base cannot be used. The message is for the maintainer."""


@dataclass(frozen=True)
class Built:
    """The digest of the image's index, and each package of the image with its version and its kind in purls."""

    digest: str
    packages: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class _Base:
    """The image of one platform in the base."""

    digest: str
    manifest: Mapping[str, Any]
    config: Mapping[str, Any]
    files: Mapping[str, bytes]

    @property
    def platform(self) -> Mapping[str, str]:
        return {key: self.config[key] for key in ("os", "architecture", "variant") if key in self.config}

    @property
    def python(self) -> str:
        """Returns the version of Python. Raises ImageError if it is not the version of the build."""
        given: list[str] = self.config["config"]["Env"]
        variables = dict(each.split("=", 1) for each in given)
        version, ours = variables.get("PYTHON_VERSION", "(none)"), sys.version_info
        if version.split(".")[:2] != [str(ours.major), str(ours.minor)]:
            raise ImageError(
                f"the base has Python {version}, which cannot use the bytecode of Python {ours.major}.{ours.minor}; "
                "build the release with the base's version of Python"
            )
        return version


def build(base: Path, archive: Path, version: str, source: str, platforms: Iterable[str] = PLATFORMS) -> Built:
    """Writes an OCI archive with the image on the layout in the folder `base`. Raises ImageError.

    `source` is the URL of the repository, by which a registry shows the image next to its source.
    """
    found = {f"{each.config['os']}/{each.config['architecture']}": each for each in _images(base, _index(base))}
    if lacking := [each for each in platforms if each not in found]:
        raise ImageError(f"the base has no image for {', '.join(lacking)}; copy it with skopeo copy --all")
    blobs: dict[str, bytes] = {}
    chosen = [found[each] for each in platforms]
    manifests = [_extended(each, version, source, blobs) for each in chosen]
    index = {"schemaVersion": 2, "mediaType": f"{_OCI}.index.v1+json", "manifests": manifests}
    top = _put(blobs, "index.v1+json", _encoded(index))
    kept = {layer["digest"] for each in chosen for layer in each.manifest["layers"]}
    with tarfile.open(archive, "w") as out:
        _add(out, "oci-layout", _encoded({"imageLayoutVersion": "1.0.0"}))
        named = {"org.opencontainers.image.ref.name": version}
        _add(out, _INDEX, _encoded({"schemaVersion": 2, "manifests": [{**top, "annotations": named}]}))
        for digest in sorted(kept):
            _add(out, str(_blob_path(digest)), _blob(base, digest))
        for digest, content in blobs.items():
            _add(out, str(_blob_path(digest)), content)
    packages = {("gpu-tenancy", version, "pypi"), (_NVML, metadata.version(_NVML), "pypi")}
    for each in chosen:
        installed = _PACKAGE.finditer(each.files.get(_PACKAGES, b"").decode())
        packages |= {("python", each.python, "generic"), *((match[1], match[2], "deb/debian") for match in installed)}
    return Built(top["digest"], tuple(sorted(packages)))


def unpack(archive: Path, folder: Path, architecture: str) -> None:
    """Unpacks the files of the image for one architecture. Raises ImageError if the archive has no such image."""
    layout = folder.with_name(f"{folder.name}.oci")
    shutil.unpack_archive(archive, layout)
    for each in _images(layout, _index(layout)):
        if each.config["architecture"] == architecture:
            for layer in each.manifest["layers"]:
                with tarfile.open(fileobj=io.BytesIO(_blob(layout, layer["digest"]))) as tar:
                    tar.extraction_filter = _as_it_is
                    tar.extractall(folder)  # noqa: S202 (the layers are ours, and those of the base by digest)
            return
    raise ImageError(f"{archive} has no image for {architecture}")


def codes() -> Iterator[Zipapp]:
    """Yields the zipapps of the image: of all agents, of the agents in privileged pods, and of the board."""
    yield from (zipapp.build(), zipapp.build_for_nodes(), zipapp.build_for_board())


def _as_it_is(member: tarfile.TarInfo, _: str) -> tarfile.TarInfo:
    """Extracts absolute links too, which an operating system has. Python 3.11.2 has no names for filters."""
    return member


def _extended(base: _Base, version: str, source: str, blobs: dict[str, bytes]) -> Mapping[str, Any]:
    """Returns the index's entry of the base with our layer. Adds the new blobs."""
    layer = _layer({**_bytecode(base), **{each.image_path.lstrip("/"): _compiled_zipapp(each) for each in codes()}})
    label = "org.opencontainers.image"
    labels = {
        f"{label}.title": NAME,
        f"{label}.version": version,
        f"{label}.source": source,
        f"{label}.licenses": "Apache-2.0",
        f"{label}.base.digest": base.digest,
    }
    container = base.config["config"]
    config = {
        **base.config,
        "config": {**container, "Labels": {**(container.get("Labels") or {}), **labels}},
        "rootfs": {"type": "layers", "diff_ids": [*base.config["rootfs"]["diff_ids"], _digest(layer)]},
        "history": [*base.config.get("history", ()), {"created_by": f"{NAME} {version}"}],
    }
    layers = [*base.manifest["layers"], _put(blobs, "layer.v1.tar+gzip", gzip.compress(layer, 6, mtime=0))]
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.manifest.v1+json",
        "config": _put(blobs, "config.v1+json", _encoded(config)),
        "layers": layers,
    }
    return {**_put(blobs, "manifest.v1+json", _encoded(manifest)), "platform": base.platform}


def _bytecode(base: _Base) -> Mapping[str, bytes]:
    """Returns the bytecode of the base's standard library, at the paths from which Python loads bytecode."""
    folder = PurePosixPath("usr", "local", "lib", f"python{'.'.join(base.python.split('.')[:2])}")
    made = {}
    for name, source in base.files.items():
        path = PurePosixPath(name)
        if path.is_relative_to(folder) and WITHOUT.isdisjoint(path.relative_to(folder).parts):
            cached = path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
            made[str(cached)] = _compiled(source, f"/{name}")
    return made


def _compiled_zipapp(code: Zipapp) -> bytes:
    """Returns the zipapp with the bytecode next to each module."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(code.content)) as plain, zipfile.ZipFile(made, "w") as archive:
        for name in plain.namelist():
            source = plain.read(name)
            for member, content in ((name, source), (f"{name}c", _compiled(source, name))):
                entry = zipfile.ZipInfo(member, date_time=(1980, 1, 1, 0, 0, 0))
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, content)
    return made.getvalue()


@cache
def _compiled(source: bytes, name: str) -> bytes:
    return plugin.compiled(source, name)


def _layer(files: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, each in files.items():
            _add(tar, name, each)
    return content.getvalue()


def _images(layout: Path, index: Mapping[str, Any]) -> Iterator[_Base]:
    """Yields the images of an index. An index can also have attestations, which are for no operating system."""
    for entry in index["manifests"]:
        found = json.loads(_blob(layout, entry["digest"]))
        if "manifests" in found:
            yield from _images(layout, found)
            continue
        config = json.loads(_blob(layout, found["config"]["digest"]))
        if config.get("os") == "linux":
            yield _Base(entry["digest"], found, config, _files(layout, found))


def _files(layout: Path, manifest: Mapping[str, Any]) -> dict[str, bytes]:
    """Returns the Python sources and the list of packages. The files of a later layer replace those of an earlier."""
    files: dict[str, bytes] = {}
    for layer in manifest["layers"]:
        with tarfile.open(fileobj=io.BytesIO(_blob(layout, layer["digest"]))) as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if (
                    member.isfile()
                    and (name.endswith(".py") or name == _PACKAGES)
                    and (file := tar.extractfile(member))
                ):
                    files[name] = file.read()
    return files


def _index(layout: Path) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = json.loads((layout / _INDEX).read_text())
    except FileNotFoundError:
        raise ImageError(
            f"{layout} is no image layout of OCI; write it with skopeo copy --all docker://… oci:…"
        ) from None
    return found


def _blob(layout: Path, digest: str) -> bytes:
    content = (layout / _blob_path(digest)).read_bytes()
    if _digest(content) != digest:
        raise ImageError(f"the base has other content than its digest {digest}; copy it again")
    return content


def _blob_path(digest: str) -> PurePosixPath:
    return _BLOBS / digest.removeprefix("sha256:")


def _put(blobs: dict[str, bytes], kind: str, content: bytes) -> dict[str, Any]:
    digest = _digest(content)
    blobs[digest] = content
    return {"mediaType": f"{_OCI}.{kind}", "digest": digest, "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _encoded(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    tar.addfile(entry, io.BytesIO(content))
