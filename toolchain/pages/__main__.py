"""Writes the generated pages of docs/reference (`python -m toolchain.pages`).

With --check, the program only compares the pages with the code.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from policy.rules import RULES
from stacks import schema
from toolchain.pages import alerts, components, metrics, outputs

ROOT = Path(__file__).resolve().parents[2]


def pages(root: Path = ROOT) -> Mapping[Path, str]:
    """Maps the path of each generated page to its text."""
    reference = root / "docs" / "reference"
    made = {
        reference / "alerts.md": alerts.page(root),
        reference / "metrics.md": metrics.page(),
        reference / "outputs.md": outputs.page(root),
    }
    for name in components.COMPONENTS:
        path = reference / "package" / f"{name}.md"
        made[path] = components.page(name, path.read_text())
    return made


def main(arguments: Sequence[str]) -> int:
    """Writes the pages. With --check, the function only lists the pages that differ from the code. Returns the exit
    code."""
    if arguments == ["--check"]:
        found = [*problems()]
        print("".join(f"{line}\n" for line in found), end="", file=sys.stderr)
        return int(bool(found))
    for path, text in pages().items():
        path.write_text(text)
    return 0


def problems(root: Path = ROOT) -> Iterator[str]:
    """Yields a line for each page that differs from the code, and for each policy rule that policy-rules.md lacks.

    A test compares the rest of policy-rules.md, which tests/golden generates.
    """
    for path, text in {**schema.generated_files(root), **pages(root)}.items():
        if not path.exists() or path.read_text() != text:
            yield f"{path.relative_to(root)} differs from the code: make schema"
    page = root / "docs" / "reference" / "policy-rules.md"
    described = page.read_text().splitlines()
    for rule in RULES:
        if f"### {rule.id}" not in described:
            yield f"{page.relative_to(root)} lacks the rule {rule.id}: make golden"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
