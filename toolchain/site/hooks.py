"""mkdocs builds pages from the whole repository. Therefore the same link works in a checkout and on the site."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("*.md", "docs/**/*.md", "examples/*/README.md", "toolchain/README.md", "tests/*/README.md")
# Pages of the site show these files or link to these files. The site serves the files of the repository unchanged.
SERVED = (
    "docs/**/*.svg",
    "docs/**/*.json",
    "docs/**/*.css",
    "examples/*.yaml",
    "examples/*/Pulumi.yaml",
    "examples/*/index.ts",
    "examples/*/main.go",
    "Pulumi.prod.yaml",
    "toolchain/tools.toml",
    "LICENSE",
)


def on_config(config: Any) -> Any:
    """Replaces each folder in the navigation, such as `docs/adr/`, by the folder's pages. The README is the first page
    of a folder."""
    config.nav = [_expanded(entry) for entry in config.nav]
    return config


def _expanded(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {title: below if isinstance(below, str) else _pages(below) for title, below in entry.items()}
    return entry


def _pages(entries: list[Any]) -> list[Any]:
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, str) and entry.endswith("/"):
            listed = {other for other in entries if isinstance(other, str)}
            pages = (str(page.relative_to(ROOT)) for page in sorted((ROOT / entry).glob("*.md"), key=_readme_first))
            found += [page for page in pages if page not in listed]
        else:
            found.append(_expanded(entry))
    return found


def _readme_first(page: Path) -> tuple[bool, str]:
    return page.stem != "README", page.name


def on_files(files: Files, config: Any) -> Files:
    """Returns the pages and files for the site, with their paths in the checkout."""
    ours = sorted({file for pattern in (*PAGES, *SERVED) for file in ROOT.glob(pattern)})
    theme = [file for file in files if not file.src_uri or file.src_dir != config.docs_dir]
    paths = [str(file.relative_to(ROOT)) for file in ours]
    return Files([*theme, *(File(path, str(ROOT), config.site_dir, config.use_directory_urls) for path in paths)])
