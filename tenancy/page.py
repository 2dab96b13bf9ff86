"""Makes HTML pages that load nothing. The pages share colours for light and dark backgrounds, and text styles. Pure."""

import base64
import hashlib
from collections.abc import Iterable
from html import escape

STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1f2328; --dim: #57606a; --line: #d0d7de; --card: #f6f8fa;
  --seat-tone: 70% 84%; --free: #fff; --reserve: #d8dee4; --stripe: #c3cbd3; --mark: #bc4c00; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --page: #0d1117; --text: #e6edf3; --dim: #9198a1; --line: #3d444d;
  --card: #151b23; --seat-tone: 42% 28%; --free: #0d1117; --reserve: #30363d; --stripe: #454c55; --mark: #f0883e;
  --bad: #ff7b72; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.45 -apple-system, "Segoe UI", Roboto,
  "Noto Sans", "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 1760px; margin: 0 auto; padding: 20px 24px 32px; }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 19px; line-height: 1.3; margin: 0; overflow-wrap: anywhere; }
p { margin: 4px 0; overflow-wrap: anywhere; }
.dim, figcaption span { color: var(--dim); }
.bad { color: var(--bad); font-weight: 600; }
section { border: 1px solid var(--line); border-radius: 10px; background: var(--card); padding: 14px 18px 16px;
  margin-top: 16px; }
table { border-collapse: collapse; margin-top: 8px; width: 100%; max-width: 900px; table-layout: fixed; }
th, td { text-align: left; vertical-align: top; padding: 4px 14px 4px 0; border-top: 1px solid var(--line);
  overflow-wrap: anywhere; }
th { color: var(--dim); font-weight: 500; font-size: 13px; border-top: 0; }
"""


def document(title: str, style: str, body: str, head: str = "") -> str:
    """Returns a page as an HTML file. The texts of the page are well-formed XML. `head` adds elements to its head."""
    heads = f'<meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>{head}'
    heads += f"\n<title>{escape(title)}</title>\n<style>{style}</style>"
    return f'<!doctype html>\n<html lang="en"><head>{heads}</head>\n<body>{body}</body></html>\n'


def content_security_policy(style: str, script: str) -> str:
    """Returns the policy of a served page that loads only itself, with this style and this script."""
    own = f"style-src {_hash(style)}; script-src {_hash(script)}; connect-src 'self'"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def hues(names: Iterable[str]) -> dict[str, int]:
    """Returns a hue in degrees for each name. By the golden angle, any number of hues lie far from each other."""
    return {name: round(number * 137.508) % 360 for number, name in enumerate(sorted({*names}))}
