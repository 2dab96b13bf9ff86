"""Draws each picture of docs/pictures again if its source, a file *.d2, has changed (`python -m toolchain.pictures`).

A picture contains a hash of its sources, so that a test can find an outdated picture.
"""

import hashlib
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"
STYLE = FOLDER / "style.d2"
_D2 = ROOT / ".toolchain" / "bin" / "d2"
_PAD = "20"  # pixels


def drawings() -> list[Path]:
    return [file for file in sorted(FOLDER.glob("*.d2")) if file != STYLE]


def mark(drawing: Path) -> str:
    """Returns the comment at the end of a picture that was drawn from this source as it is."""
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in (drawing, STYLE))).hexdigest()
    return f"<!-- source: {digest[:16]} -->\n"


def main() -> None:
    for drawing in drawings():
        picture = drawing.with_suffix(".svg")
        if picture.exists() and picture.read_text().endswith(mark(drawing)):
            continue
        subprocess.run([_D2, "--pad", _PAD, drawing, picture], check=True, stderr=subprocess.DEVNULL)
        picture.chmod(0o644)  # d2 writes files that only their owner may read.
        picture.write_text(f"{picture.read_text().rstrip()}\n{mark(drawing)}")
        print(picture.relative_to(ROOT))


if __name__ == "__main__":
    main()
