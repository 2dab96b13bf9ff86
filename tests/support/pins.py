"""Reads each pinned version from the only file that pins it."""

import re
import tomllib

from tests.support.paths import ROOT


def pins(group: str = "dev") -> dict[str, str]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    own = document["project"]["dependencies"] if group == "dev" else []
    requirements = [*own, *document["dependency-groups"][group]]
    return dict(match.groups() for match in (re.fullmatch(r"([\w-]+)==([\w.]+)", r) for r in requirements) if match)


def module_version(module: str, required: str) -> str:
    text = (ROOT / "toolchain" / module / "go.mod").read_text()
    match = re.search(rf"^\s*(?:require )?{re.escape(required)} v(\S+)", text, re.MULTILINE)
    assert match, f"{required} is not in toolchain/{module}/go.mod"
    return match.group(1)
