"""Holds what a release declared, as Pulumi's state has it after the release's `up`.

`python -m tests.support.released.objects VERSION EXPORT` stores the objects that `pulumi stack export` printed. For an
agents' archive, the single files are stored, because they compress better than the archive.
"""

import base64
import io
import json
import lzma
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STORED = Path(__file__).resolve().parent / "objects.json.xz"
ARCHIVE = "archive of"
PROVIDER = "pulumi:providers:"
_OF_ITSELF = ("::pulumi:pulumi:Stack::", "::default_")  # parts of the URNs of resources that the engine makes
_KEPT = ("urn", "type", "custom", "parent", "provider", "dependencies", "inputs", "customTimeouts", "replaceOnChanges")


def version() -> str:
    """Returns the version of the release."""
    return str(_read()["version"])


def resources() -> list[dict[str, Any]]:
    """Returns each resource with its inputs, after the resources on which it depends."""
    found: list[dict[str, Any]] = _read()["resources"]
    for each in found:
        for name, files in _archives(each).items():
            each["inputs"]["binaryData"][name] = base64.b64encode(_packed(files[ARCHIVE])).decode()
    return found


def store(release: str, exported: Mapping[str, Any]) -> None:
    """Stores the output of `pulumi stack export` for the release."""
    found = [
        {key: each[key] for key in _KEPT if each.get(key)}
        for each in exported["deployment"]["resources"]
        if not any(part in each["urn"] for part in _OF_ITSELF)
    ]
    for each in found:
        each["provider"] = each.get("provider", "").rpartition("::")[0]  # the URN of the provider without its id
        for name, content in _archives(each).items():
            each["inputs"]["binaryData"][name] = {ARCHIVE: _unpacked(base64.b64decode(content))}
    text = json.dumps({"version": release, "resources": found}, sort_keys=True)
    STORED.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lzma.decompress(STORED.read_bytes()))
    return found


def _archives(resource: Mapping[str, Any]) -> dict[str, Any]:
    return dict(resource.get("inputs", {}).get("binaryData", {}))


def _unpacked(archive: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(archive)) as read:
        return {name: read.read(name).decode() for name in read.namelist()}


def _packed(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as written:
        for name, text in files.items():
            written.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


if __name__ == "__main__":
    store(sys.argv[1], json.loads(Path(sys.argv[2]).read_text()))
