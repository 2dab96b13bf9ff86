"""Draws each picture of docs/pictures again if its source has changed (`python -m toolchain.pictures [--capture]`).

The sources are the files *.d2 and demo.json. `make demo ARGS="--record docs/pictures/demo.json"` writes demo.json. With
--capture, the program also runs three previews and draws their reports and the picture of a pull request.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolchain.pictures import capture, day, terminal
from toolchain.pictures.svg import is_fresh, page_picture, with_source_hash

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
STYLE = FOLDER / "style.d2"
DEMO = FOLDER / "demo.json"
# Each picture shows the first report of a command in a step of the demo.
_REPORTS = {
    "who.svg": ("leak", "who"),
    "status.svg": ("seat", "status"),
    "changes.svg": ("seat", "changes"),
    "drain.svg": ("seat", "drain"),
}
_D2 = FOLDER.parents[1] / ".toolchain" / "bin" / "d2"
_PAD = "20"  # pixels
_PAGE = 900, 1066  # the width and height of the picture of a pull request in pixels


def sources() -> dict[Path, tuple[Path, ...]]:
    """Maps each picture to its source files. Pictures of previews have no source file."""
    drawings = [file for file in sorted(FOLDER.glob("*.d2")) if file != STYLE]
    return {
        **{file.with_suffix(".svg"): (file, STYLE) for file in drawings},
        FOLDER / "day.svg": (DEMO,),
        **{FOLDER / name: (DEMO,) for name in _REPORTS},
    }


def main(arguments: Sequence[str]) -> int:
    """Draws the pictures and returns the exit code 0."""
    recorded = json.loads(DEMO.read_text())
    for picture, made_from in sources().items():
        if not is_fresh(picture, *made_from):
            picture.write_text(with_source_hash(_drawn(picture, made_from[0], recorded), *made_from))
            print(picture.relative_to(FOLDER.parents[1]))
    if "--capture" in arguments:
        command = "make preview"
        (FOLDER / "preview.svg").write_text(terminal.terminal_picture(command, capture.preview()))
        (FOLDER / "refused.svg").write_text(terminal.terminal_picture(command, capture.preview("llama-swap", 7000)))
        page = capture.pull_request({"llama-swap": 4400, "immich-ml": 3500})
        (FOLDER / "pull-request.svg").write_text(page_picture(page, *_PAGE))
    return 0


def _drawn(picture: Path, source: Path, recorded: dict[str, Any]) -> str:
    if picture.name == "day.svg":
        return day.day_chart(recorded)
    if picture.name in _REPORTS:
        step, verb = _REPORTS[picture.name]
        command = f"kubectl gpumem {verb}"
        reports = [e for e in recorded["answers"] if e["step"] == step and e["command"].startswith(command)]
        return terminal.terminal_picture(reports[0]["command"], reports[0]["text"])
    subprocess.run([str(_D2), "--pad", _PAD, str(source), str(picture)], check=True, stderr=subprocess.DEVNULL)
    picture.chmod(0o644)  # d2 writes files that only their owner may read.
    return picture.read_text()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
