"""The pinned versions, from the one place of each."""

import re
import tomllib

from tests.support.paths import ROOT


def pins() -> dict[str, str]:
    """Exact pins of pyproject.toml, the one place for Python packages."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    requirements = [*document["project"]["dependencies"], *document["dependency-groups"]["dev"]]
    return dict(match.groups() for match in (re.fullmatch(r"([\w-]+)==([\w.]+)", r) for r in requirements) if match)


def module_version(module: str, required: str) -> str:
    """The version of a Go module as toolchain/<module>/go.mod pins it."""
    text = (ROOT / "toolchain" / module / "go.mod").read_text()
    match = re.search(rf"^\s*(?:require )?{re.escape(required)} v(\S+)", text, re.MULTILINE)
    assert match, f"{required} is not in toolchain/{module}/go.mod"
    return match.group(1)
