"""Elements of an SVG file. A picture carries the hash of its source, by which a test finds a stale one."""

import hashlib
from collections.abc import Iterable
from html import escape
from pathlib import Path

_MARK = "<!-- source: {} -->"


def element(name: str, text: str | None = None, **attributes: object) -> str:
    """Returns an element. An underscore in an attribute's name stands for a hyphen."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
    return f"<{name}{given}/>" if text is None else f"<{name}{given}>{escape(text)}</{name}>"


def picture(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """Returns the file of a picture. `title` describes it to a reader who does not see it."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return "\n".join([head, element("title", title), *parts, "</svg>", ""])


def with_source_hash(svg: str, *sources: Path) -> str:
    """Returns the picture with the hash of its sources at its end."""
    return f"{svg.rstrip()}\n{_MARK.format(digest(*sources))}\n"


def is_fresh(file: Path, *sources: Path) -> bool:
    """Returns True if the picture was made from the sources as they are."""
    return file.exists() and _MARK.format(digest(*sources)) in file.read_text()


def digest(*sources: Path) -> str:
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:16]
