"""Writes SVG files. A picture contains a hash of its sources, so that a test can find an outdated picture."""

import hashlib
from collections.abc import Iterable
from html import escape, unescape
from pathlib import Path

_MARK = "<!-- source: {} -->"


def element(name: str, text: str | None = None, **attributes: object) -> str:
    """Returns an SVG element. In the attributes' names, an underscore stands for a hyphen."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
    return f"<{name}{given}/>" if text is None else f"<{name}{given}>{escape(text)}</{name}>"


def picture(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """Returns the text of an SVG file. `title` is the text for screen readers."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return "\n".join([head, element("title", title), *parts, "</svg>", ""])


def page_picture(page: str, width: int, height: int) -> str:
    """Returns the text of an SVG file that shows a page. The page must be well-formed XML."""
    title, style, body = (
        page.partition(f"<{name}>")[2].partition(f"</{name}>")[0] for name in ("title", "style", "body")
    )
    shown = f'<body xmlns="http://www.w3.org/1999/xhtml">{body}</body>'
    whole = f'<foreignObject width="{width}" height="{height}">{shown}</foreignObject>'
    return picture(width, height, unescape(title), [element("style", style), whole])


def with_source_hash(svg: str, *sources: Path) -> str:
    """Returns the picture with a comment at the end, which contains the hash of its sources."""
    return f"{svg.rstrip()}\n{_MARK.format(digest(*sources))}\n"


def is_fresh(file: Path, *sources: Path) -> bool:
    """Returns True if the picture exists and contains the hash of its present sources."""
    return file.exists() and _MARK.format(digest(*sources)) in file.read_text()


def digest(*sources: Path) -> str:
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:16]
