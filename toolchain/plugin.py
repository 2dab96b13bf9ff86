"""Builds the plugin kubectl-gpumem (`python -m toolchain.plugin FOLDER`).

The result of the build is one file for any Python 3.11.

The plugin's file contains each module's source. The plugin's file also contains bytecode for the Python version of the
build. With the bytecode, the Python of the build starts the plugin faster. Another Python version ignores the bytecode.
Two builds with the same Python give the same file.
"""

import importlib.util
import io
import marshal
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAME = "kubectl-gpumem"
_PACKAGES = ("gpumem", "tenancy", "agents")
# The plugin imports no module of these agents.
_WITHOUT = ("exporter", "gate", "guard", "node", "reconcile", "watchdog")
_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN = b"import sys\n\nfrom gpumem.cli import run\n\nsys.exit(run())\n"


def build(root: Path = ROOT) -> bytes:
    """Returns the content of kubectl-gpumem."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _members(root):
            member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            member.create_system = 3  # The number 3 means Unix, also on Windows, so that each build is the same.
            member.external_attr = 0o644 << 16
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)
    return _SHEBANG + buffer.getvalue()


def _members(root: Path) -> Iterator[tuple[str, bytes]]:
    yield "__main__.py", _MAIN
    for path in sorted(path for package in _PACKAGES for path in (root / package).rglob("*.py")):
        relative = path.relative_to(root)
        if relative.parts[0] == "agents" and relative.parts[1] in _WITHOUT:
            continue
        source = path.read_bytes()
        yield relative.as_posix(), source
        yield relative.with_suffix(".pyc").as_posix(), compiled(source, relative.as_posix())


def compiled(source: bytes, name: str) -> bytes:
    """Returns the module's bytecode. importlib loads the bytecode without a comparison with the source (PEP 552)."""
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    unchecked = (0b01).to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + unchecked + importlib.util.source_hash(source) + marshal.dumps(code)


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{NAME}.new"
    made.write_bytes(build())
    made.chmod(0o755)
    made.replace(folder / NAME)
    print(f"{folder / NAME}: put it into a folder on PATH; then type kubectl gpumem --help")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
