"""The tools, one module a group. Versions are read from the pins; these add where releases are and how to build."""

from collections.abc import Callable

from toolchain.installer.tool import Tool
from toolchain.installer.tools.cluster import cluster
from toolchain.installer.tools.languages import languages
from toolchain.installer.tools.lint import lint
from toolchain.installer.tools.node import node
from toolchain.installer.tools.oracle import oracle
from toolchain.installer.tools.preview import preview, python
from toolchain.installer.tools.site import Site, site_of

GROUPS: dict[str, Callable[[Site], tuple[Tool, ...]]] = {
    "python": python,
    "preview": preview,
    "cluster": cluster,
    "node": node,
    "lint": lint,
    "oracle": oracle,
    "languages": languages,
}

__all__ = ["GROUPS", "Site", "site_of"]
