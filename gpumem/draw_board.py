"""Draws the page of `kubectl gpumem board` from its reports. The page loads nothing from elsewhere. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from gpumem import draw
from gpumem.board import Board, Wait
from gpumem.paper import NUMBERS, kept_columns, printable
from gpumem.pools import PoolRow
from gpumem.rows import DeviceRow, NodeRow
from tenancy import page
from tenancy.bars import FREE, Segment

_MOST_DEVICES, _MOST_ROWS, _MOST_LINES, _LONGEST = 64, 100, 4, 600
_FILLS = {draw.PLANNED: "planned", FREE: "free"}
# A narrow screen leaves out these columns.
_COLUMNS = {
    **dict.fromkeys((*NUMBERS, "HELD"), "number"),
    **dict.fromkeys(("SEAT", "CAPPED", "STATE", "COHORT", "FLAVOR", "POOL"), "wide"),
}
_OWN_STYLE = """
main { max-width: 1100px; }
h3 { font-size: 15px; margin: 14px 0 2px; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: 22px; margin-top: 4px; background: var(--free);
  border: 1px solid var(--line); border-radius: 4px; }
svg.measured { height: 12px; }
svg.key { display: inline-block; width: 12px; height: 12px; margin: 0 5px 0 0; border: 0; border-radius: 3px; }
rect { stroke: var(--card); }
.planned { fill: var(--stripe); } .free { fill: none; } .others { fill: var(--dim); } .used { fill: var(--mark); }
.floor { fill: var(--text); stroke: none; }
.wait { border-left: 3px solid var(--mark); padding-left: 10px; margin-top: 12px; }
.lost { display: none; } .stale .lost { display: block; }
table { table-layout: auto; max-width: none; }
th, td { padding-right: 8px; } th { overflow-wrap: normal; }
.number { text-align: right; white-space: nowrap; }
@media (max-width: 599px) { main { padding: 12px 10px 24px; } section { padding: 10px 12px; }
  table { font-size: 13px; } th { font-size: 12px; } .wide { display: none; } }
"""
_SCRIPT = """
const main = document.querySelector.bind(document, "main");
const later = () => setTimeout(next, main().dataset.seconds * 1000);
async function next() {
  try {
    if (!document.hidden) {
      const answer = await fetch(location.pathname, {cache: "no-store"});
      if (!answer.ok) throw answer.status;
      const read = new DOMParser().parseFromString(await answer.text(), "text/html");
      main().replaceWith(read.querySelector("main"));
      document.body.className = "";
    }
  } catch { document.body.className = "stale"; }
  later();
}
later();
"""
_STYLE = page.STYLE + _OWN_STYLE.lstrip()
CONTENT_SECURITY_POLICY = page.content_security_policy(_STYLE, _SCRIPT)


def board_page(board: Board, seconds: int, problem: str = "") -> str:
    """Returns the page, which reads itself again after `seconds`. `problem` is the reason why the numbers are old."""
    body = "\n".join(_body(board, problem))
    lost = '<p class="lost bad">The board does not answer. These are its last numbers.</p>'
    shown = f'{lost}<main data-seconds="{seconds}">\n{body}\n</main><script>{_SCRIPT}</script>'
    reload = f'<noscript><meta http-equiv="refresh" content="{seconds}"/></noscript>'
    return page.document("GPU memory", _STYLE, shown, reload)


def _body(board: Board, problem: str) -> Iterator[str]:
    users = board.who
    scope = f", with the pods of {users.scope}" if users.scope else "" if board.named else ", without the names of pods"
    yield f"<h1>GPU memory</h1>{_line(f'{board.at:%Y-%m-%d %H:%M:%S} UTC, in MiB{scope}', 'dim')}"
    yield _line(f"These numbers are old: {problem}" if problem else "", "bad") + _line(users.observed, "bad")
    hues = page.hues(pod.namespace for node in users.nodes for device in node.devices for pod in device.pods)
    for pool in users.pools:
        yield _section(pool.pool, *_pool(pool, [node for node in users.nodes if node.pool == pool.pool], board, hues))
    for whole in users.whole_pools:
        rows = [each for each in users.whole if each.pool == whole.pool]
        parts = [Segment(label=f"{each.node}: {each.held} held", amount=each.held, tenant="others") for each in rows]
        cells = [(each.node, str(each.held), str(each.offered or 0), ", ".join(each.pods)) for each in rows]
        line, table = draw.whole_line(whole), _table(("NODE", "HELD", "GPUS", "PODS"), cells)
        yield _section(whole.pool, _line(line), _bar(line, whole.gpus, parts), table)
    yield _section("Waiting", *map(_wait, board.waits[:_MOST_ROWS]), _more(board.waits, _MOST_ROWS))
    yield _section("Queues", _table(draw.QUEUES_HEADER, map(draw.queue_row, users.queues)))
    yield _section("On demand", _table(draw.GATES_HEADER, map(draw.gate_row, users.gates)))
    yield _section("Not known", *map(_line, users.unknown[:_MOST_ROWS]), _more(users.unknown, _MOST_ROWS))


def _pool(pool: PoolRow, nodes: Sequence[NodeRow], board: Board, hues: Mapping[str, int]) -> Iterator[str]:
    (first, *others), scope = draw.pool_lines(pool), board.who.scope
    promised = Segment(label=f"promised {pool.promised_mib}", amount=pool.promised_mib, tenant="others")
    yield _lines([first]) + _bar(first[0], max(pool.advertised_mib, pool.promised_mib), [promised]) + _lines(others)
    devices = [(node, device) for node in nodes for device in node.devices]
    devices.sort(key=lambda each: not any(alarm for _, alarm in draw.device_lines(each[1], scope)))
    yield from (_device(node, device, scope, hues) for node, device in devices[:_MOST_DEVICES])
    yield _more(devices, _MOST_DEVICES)
    for node in nodes:
        yield _line(f"{node.node} takes no new pod: {node.unusable}" if node.unusable else "", "bad")
        yield _line(f"{node.node}: the device of these pods is gone, or not known:" if node.adrift else "", "bad")
        yield _table(draw.PODS_HEADER, map(draw.pod_row, node.adrift), hues)


def _device(node: NodeRow, device: DeviceRow, scope: str | None, hues: Mapping[str, int]) -> str:
    lines, parts = [*draw.device_lines(device, scope)], draw.device_parts(device, scope)
    bars = _bar(lines[0][0], max(device.offered_mib, device.held_mib), parts, hues)
    used_mib, free_mib = device.measured_used_mib, device.measured_free_mib
    if used_mib is not None and free_mib is not None:
        used = Segment(label=f"used {used_mib}", amount=used_mib, tenant="used")
        bars += _bar(lines[1][0], used_mib + free_mib, [used], hues, device.floor_mib)
    pods = _table(draw.PODS_HEADER, map(draw.pod_row, device.pods), hues)
    return f"<h3>{_text(node.node)}, gpu {device.index}</h3>{_lines(lines)}{bars}{pods}"


def _wait(wait: Wait) -> str:
    lines = [f"<h3>{_text(wait.about)}</h3>", _line(wait.asks, "dim")]
    if answer := wait.answer:
        lines += [_line(f"{answer.title} [{answer.reason}]", "bad"), _line(answer.text)]
        lines += [_line(each, "dim") for each in answer.more[:_MOST_LINES]]
        lines += [_line(f"next: {answer.then}"), _line(f"do: {answer.do}")]
    return f'<div class="wait">{"".join(lines)}</div>'


def _text(text: object) -> str:
    """Returns a text of any origin for HTML, without control characters and with a limited length."""
    shown = printable(str(text))
    return escape(f"{shown[:_LONGEST]}…" if len(shown) > _LONGEST else shown)


def _line(text: str | None, style: str = "") -> str:
    return f'<p class="{style}">{_text(text)}</p>' if text else ""


def _lines(lines: Iterable[tuple[str, bool]]) -> str:
    """Returns sentences, of which some are alarms."""
    return "".join(_line(text, "bad" if alarm else "") for text, alarm in lines)


def _more(found: Sequence[object], most: int) -> str:
    return _line(f"and {len(found) - most} more, which kubectl gpumem lists", "dim") if len(found) > most else ""


def _section(title: str, *parts: str) -> str:
    body = "\n".join(filter(None, parts))
    return f"<section><h2>{_text(title)}</h2>{body}</section>" if body else ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], hues: Mapping[str, int] | None = None) -> str:
    """Returns a table without its empty columns. The first cell of a row has its colour in `hues`."""
    shown = [*rows]
    kept = [(i, _COLUMNS.get(header[i], "")) for i in (kept_columns(header, shown) if shown else ())]

    def line(kind: str, row: Sequence[str]) -> str:
        hue = (hues or {}).get(row[0])
        key = f'<svg class="key"><rect width="12" height="12" {_fill(hue)}/></svg>' if hue is not None else ""
        cells = [f'<{kind} class="{style}">{key * (i == 0)}{_text(row[i])}</{kind}>' for i, style in kept]
        return f"<tr>{''.join(cells)}</tr>"

    return f"<table>{line('th', header)}{''.join(line('td', row) for row in shown)}</table>" if shown else ""


def _fill(hue: int) -> str:
    return f'fill="hsl({hue} var(--seat-tone))"'


def _bar(
    spoken: str, total: int, parts: Iterable[Segment], hues: Mapping[str, int] | None = None, floor_mib: int = -1
) -> str:
    """Returns a bar of `total`. A bar of measured memory is thinner, and has a line at its floor."""
    at, drawn = 0, []
    for part in (each for each in parts if each.amount > 0 and total > 0):
        hue = (hues or {}).get(part.tenant or "")
        colour = f'class="{part.tenant or _FILLS[part.fill]}"' if hue is None else _fill(hue)
        box = f'x="{100 * at / total:.2f}%" width="{100 * part.amount / total:.2f}%" height="100%"'
        drawn.append(f"<rect {box} {colour}><title>{_text(part.label)}</title></rect>")
        at += part.amount
    if floor_mib > 0 and total > 0:
        box = f'x="{100 * (total - floor_mib) / total:.2f}%" width="2" height="100%"'
        drawn.append(f'<rect {box} class="floor"><title>floor {floor_mib}</title></rect>')
    style = "measured" if floor_mib >= 0 else "bar"
    return f'<svg class="{style}" role="img" aria-label="{_text(spoken)}">{"".join(drawn)}</svg>'
