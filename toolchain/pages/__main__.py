"""`python -m toolchain.pages`: writes the pages of docs/reference that the code generates; --check compares them."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolchain.pages import alerts, commands, components, metrics, outputs

ROOT = Path(__file__).resolve().parents[2]


def pages(root: Path = ROOT) -> Mapping[Path, str]:
    """Returns the text of each page by its path."""
    reference = root / "docs" / "reference"
    made = {
        reference / "alerts.md": alerts.page(root),
        reference / "commands.md": commands.page(),
        reference / "metrics.md": metrics.page(),
        reference / "outputs.md": outputs.page(root),
    }
    for name in components.COMPONENTS:
        path = reference / "package" / f"{name}.md"
        made[path] = components.page(name, path.read_text())
    return made


def main(arguments: Sequence[str]) -> int:
    """Writes the pages, or with --check lists those that differ from the code. Returns the exit code."""
    made = pages()
    if arguments != ["--check"]:
        for path, text in made.items():
            path.write_text(text)
        return 0
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} differs from the code: make schema", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
