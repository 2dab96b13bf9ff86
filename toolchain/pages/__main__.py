"""Writes the generated pages of docs/reference (`python -m toolchain.pages`). A test compares them with the code."""

from collections.abc import Mapping
from pathlib import Path

from toolchain.pages import alerts, components, metrics

ROOT = Path(__file__).resolve().parents[2]


def pages(root: Path = ROOT) -> Mapping[Path, str]:
    """Maps the path of each generated page to its text."""
    reference = root / "docs" / "reference"
    made = {
        reference / "alerts.md": alerts.page(root),
        reference / "metrics.md": metrics.page(),
    }
    for name in components.COMPONENTS:
        path = reference / "package" / f"{name}.md"
        made[path] = components.page(name, path.read_text())
    return made


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text)
