"""Draws pools as parts of HTML pages, which load nothing and fit narrow and wide windows, and light and dark screens.

The texts of a page are well-formed XML. The pages have no style attributes, which the policy of a served page forbids.
"""

import base64
import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from html import escape

from tenancy.drawing.model import Bar, DrawnPool, Fact
from tenancy.drawing.text import printable

_LONGEST = 600
STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1f2328; --dim: #57606a; --line: #d0d7de; --card: #f6f8fa;
  --seat-tone: 70% 84%; --free: #fff; --reserve: #d8dee4; --stripe: #c3cbd3; --mark: #bc4c00; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --page: #0d1117; --text: #e6edf3; --dim: #9198a1; --line: #3d444d;
  --card: #151b23; --seat-tone: 42% 28%; --free: #0d1117; --reserve: #30363d; --stripe: #454c55; --mark: #f0883e;
  --bad: #ff7b72; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.45 -apple-system, "Segoe UI", Roboto,
  "Noto Sans", "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 1100px; margin: 0 auto; padding: 20px 24px 32px; }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 19px; line-height: 1.3; margin: 0; overflow-wrap: anywhere; }
h3 { font-size: 15px; margin: 14px 0 2px; overflow-wrap: anywhere; }
p { margin: 4px 0; overflow-wrap: anywhere; }
.dim { color: var(--dim); }
.bad { color: var(--bad); font-weight: 600; }
section { border: 1px solid var(--line); border-radius: 10px; background: var(--card); padding: 14px 18px 16px;
  margin-top: 16px; }
.parts { margin-top: 10px; } .parts span { display: inline-block; margin-right: 12px; }
svg { display: block; width: 100%; height: 22px; margin: 4px 0; background: var(--free);
  border: 1px solid var(--line); border-radius: 4px; }
svg.key { display: inline-block; width: 12px; height: 12px; margin: 0 5px 0 0; border-radius: 3px; }
rect { stroke: var(--card); }
.held { fill: var(--dim); } .queues { fill: var(--line); } .planned { fill: var(--stripe); } .free { fill: none; }
.reserve { fill: var(--reserve); }
.changed { color: var(--mark); font-weight: 600; }
table { border-collapse: collapse; margin-top: 8px; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 4px 8px 4px 0; border-top: 1px solid var(--line);
  overflow-wrap: anywhere; }
td:first-child { min-width: 6em; }
th { color: var(--dim); font-weight: 500; font-size: 13px; border-top: 0; }
"""


def document(title: str, style: str, body: str, head: str = "") -> str:
    """Returns a page as an HTML file. All arguments are HTML. `head` adds elements to the page's head."""
    heads = f'<meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>{head}'
    heads += f"\n<title>{title}</title>\n<style>{style}</style>"
    return f'<!doctype html>\n<html lang="en"><head>{heads}</head>\n<body>{body}</body></html>\n'


def content_security_policy(style: str, script: str) -> str:
    """Returns the policy of a served page that loads only itself, with this style and this script."""
    own = f"style-src {_hash(style)}; script-src {_hash(script)}; connect-src 'self'"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def text(shown: str) -> str:
    """Returns a text of any origin for HTML, without control characters and with a limited length."""
    cut = printable(shown)
    return escape(f"{cut[:_LONGEST]}…" if len(cut) > _LONGEST else cut)


def line(shown: str, style: str = "") -> str:
    return f'<p class="{style}">{text(shown)}</p>' if shown else ""


def facts(found: Iterable[Fact]) -> str:
    return "".join(line(fact.text, "bad" if fact.alarm else "") for fact in found)


def section(title: str, *parts: str) -> str:
    body = "\n".join(filter(None, parts))
    return f"<section><h2>{text(title)}</h2>{body}</section>" if body else ""


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    styles: Mapping[str, str] | None = None,
    *,
    alarm: str = "",
    style: str = "",
) -> str:
    """Returns a table, or "" without rows. `styles` has the CSS classes of columns, and `style` is that of the table.

    The cells of the column `alarm` are alarms, unless they have only a dash.
    """
    cells = [*rows]

    def row(kind: str, found: Sequence[str]) -> str:
        return "".join(
            _cell(kind, cell, (styles or {}).get(name, ""), name == alarm)
            for name, cell in zip(header, found, strict=True)
        )

    body = "".join(f"<tr>{row('td', each)}</tr>" for each in cells)
    return f'<table class="{style}"><tr>{row("th", header)}</tr>{body}</table>' if cells else ""


def _cell(kind: str, shown: str, style: str, alarms: bool) -> str:
    bad = " bad" if alarms and kind == "td" and shown != "-" else ""
    return f'<{kind} class="{style}{bad}">{text(shown)}</{kind}>'


def pool(drawn: DrawnPool, changed: Container[str] = ()) -> str:
    """Returns the section of a pool. `changed` has the names of parts that the page emphasizes."""
    colours = hues(drawn.bars)
    bars = (bar(each, colours, changed) for each in drawn.bars)
    return section(drawn.name, facts(drawn.facts), *bars, facts(drawn.more))


def hues(bars: Iterable[Bar]) -> dict[str, int]:
    """Returns a hue in degrees for each owner. By the golden angle, any number of hues lie far from each other."""
    owners = {part.owner for each in bars for part in each.parts} - {""}
    return {owner: round(number * 137.508) % 360 for number, owner in enumerate(sorted(owners))}


def bar(drawn: Bar, colours: Mapping[str, int], changed: Container[str] = ()) -> str:
    """Returns the bar of a device, with the names and the amounts of its parts above it."""
    parts = [part for part in drawn.parts if part.total > 0]
    at, total, labels, rects = 0, sum(part.total for part in parts), [], []
    for part in parts:
        hue = colours.get(part.owner)
        fill = f'class="{part.kind}"' if hue is None else f'fill="hsl({hue} var(--seat-tone))"'
        key = f'<svg class="key"><rect width="12" height="12" {fill}/></svg>'
        labels.append(f'<span class="{"changed" * (part.name in changed)}">{key}{text(part.label)}</span>')
        box = f'x="{100 * at / total:.2f}%" width="{100 * part.total / total:.2f}%" height="100%"'
        rects.append(f"<rect {box} {fill}><title>{text(part.label)}</title></rect>")
        at += part.total
    spoken = text(f"{drawn.title}{', '.join(part.label for part in parts)}")
    named = f'<p class="parts">{text(drawn.title)} {" ".join(labels)}</p>'
    return f'{named}<svg role="img" aria-label="{spoken}">{"".join(rects)}</svg>'


def _hash(shown: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(shown.encode()).digest()).decode()}'"
