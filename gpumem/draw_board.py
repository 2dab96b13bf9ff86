"""Draws the page of `kubectl gpumem board` from its reports. The page loads nothing from elsewhere. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from gpumem import draw
from gpumem.board import Board, Wait
from gpumem.changes import Change
from gpumem.paper import NUMBERS, kept_columns
from gpumem.pools import PoolRow
from gpumem.rows import DeviceRow, Holder, NodeRow
from gpumem.status import State, Status
from tenancy.drawing import html
from tenancy.drawing.model import Bar, Kind, Part

_MOST_ROWS, _MOST_LINES, _MOST_ACTS = 100, 4, 8
# A narrow screen leaves out these columns.
_COLUMNS = {
    **dict.fromkeys((*NUMBERS, "HELD"), "number"),
    **dict.fromkeys(("LENT", "TO BORROW"), "number wide"),
    **dict.fromkeys(("SEAT", "CAPPED", "STATE", "COHORT", "FLAVOR", "POOL", "WHAT"), "wide"),
}
_OWN_STYLE = """
.wait { border-left: 3px solid var(--mark); padding-left: 10px; margin-top: 12px; }
.lost { display: none; } .stale .lost { display: block; }
th { overflow-wrap: normal; }
.number { text-align: right; white-space: nowrap; padding-right: 16px; }
@media (max-width: 599px) { main { padding: 12px 10px 24px; } section { padding: 10px 12px; }
  table { font-size: 13px; } th { font-size: 12px; } .wide { display: none; } .number { padding-right: 8px; }
  .pods td:first-child { min-width: 4em; } .pods td:nth-child(2) { min-width: 29vw; } }
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
_STYLE = html.STYLE + _OWN_STYLE.lstrip()
CONTENT_SECURITY_POLICY = html.content_security_policy(_STYLE, _SCRIPT)


def board_page(board: Board, seconds: int, problem: str = "") -> str:
    """Returns the page, which reads itself again after `seconds`. `problem` is the reason why the numbers are old."""
    body = "\n".join(_body(board, problem))
    lost = '<p class="lost bad">The board does not answer. These are its last numbers.</p>'
    shown = f'{lost}<main data-seconds="{seconds}">\n{body}\n</main><script>{_SCRIPT}</script>'
    reload = f'<noscript><meta http-equiv="refresh" content="{seconds}"/></noscript>'
    return html.document("GPU memory", _STYLE, shown, reload)


def _body(board: Board, problem: str) -> Iterator[str]:
    users = board.who
    scope = f", with the pods of {users.scope}" if users.scope else "" if board.named else ", without the names of pods"
    yield f"<h1>GPU memory</h1>{html.line(f'{board.at:%Y-%m-%d %H:%M:%S} UTC, in MiB{scope}', 'dim')}"
    yield html.line(f"These numbers are old: {problem}" if problem else "", "bad") + html.line(users.observed, "bad")
    yield html.section("Platform", *_status(board.status))
    yield html.section("Last hour", _acts(board.acts)) if board.named else ""
    for pool in sorted(users.pools, key=lambda pool: not _in_trouble(pool, users.nodes, users.scope)):
        nodes = [node for node in users.nodes if node.pool == pool.pool]
        yield html.section(pool.pool, *_pool(pool, nodes, users.scope))
    for whole in users.whole_pools:
        rows = [each for each in users.whole if each.pool == whole.pool]
        cells = [(each.node, str(each.held), str(each.offered or 0), ", ".join(each.pods)) for each in rows]
        table = _table(("NODE", "HELD", "GPUS", "PODS"), cells)
        yield html.section(whole.pool, html.line(draw.whole_line(whole)), table)
    yield html.section("Waiting", *map(_wait, board.waits[:_MOST_ROWS]), _more(board.waits))
    yield html.section("Queues", _table(draw.QUEUES_HEADER, map(draw.queue_row, users.queues)))
    yield html.section("On demand", _table(draw.GATES_HEADER, map(draw.gate_row, users.gates)))
    yield html.section("Not known", *map(html.line, users.unknown[:_MOST_ROWS]), _more(users.unknown))


def _status(status: Status) -> Iterator[str]:
    """Yields the parts that do not work, the worst first."""
    states = [*State]
    troubled = sorted(
        (part for part in status.parts if part.state is not State.WELL), key=lambda p: -states.index(p.state)
    )
    for part in troubled:
        yield html.line(f"{part.name} is {part.state}: {part.text}", "bad" if part.state is State.WRONG else "")
    yield html.line("" if troubled else f"all {len(status.parts)} parts work")


def _acts(acts: Sequence[Change]) -> str:
    rows = [
        (act.at[11:16], act.what, f"{act.namespace}/{act.name}" if act.namespace else act.name, act.text)
        for act in acts[:_MOST_ACTS]
    ]
    return _table(("TIME", "WHAT", "ABOUT", "TEXT"), rows) if rows else html.line("the platform did nothing", "dim")


def _in_trouble(pool: PoolRow, nodes: Sequence[NodeRow], scope: str | None) -> bool:
    mine = [node for node in nodes if node.pool == pool.pool]
    facts = [*draw.pool_facts(pool), *(f for n in mine for d in n.devices for f in draw.device_facts(d, scope))]
    return any(fact.alarm for fact in facts) or any(node.unusable or node.adrift for node in mine)


def _pool(pool: PoolRow, nodes: Sequence[NodeRow], scope: str | None) -> Iterator[str]:
    yield html.facts(draw.pool_facts(pool))
    devices = [(node, device) for node in nodes for device in node.devices]
    devices.sort(key=lambda each: not any(fact.alarm for fact in draw.device_facts(each[1], scope)))
    bars = [[*_bars(device, scope)] for _, device in devices]
    hues = html.hues(bar for each in bars for bar in each)
    for (node, device), drawn in zip(devices, bars, strict=True):
        yield f"<h3>{html.text(node.node)}, gpu {device.index}</h3>{html.facts(draw.device_facts(device, scope))}"
        yield from (html.bar(each, hues) for each in drawn)
        yield _pods(device.pods)
    for node in nodes:
        yield html.line(f"{node.node} takes no new pod: {node.unusable}" if node.unusable else "", "bad")
        yield html.line(f"{node.node}: the device of these pods is gone, or not known:" if node.adrift else "", "bad")
        yield _pods(node.adrift)


def _pods(pods: Iterable[Holder]) -> str:
    return _table(draw.PODS_HEADER, map(draw.pod_row, pods), alarm="OVER", style="pods")


def _bars(device: DeviceRow, scope: str | None) -> Iterator[Bar]:
    """Yields the bar of what pods hold, and that of what is measured, both as long as the device's memory."""
    held = [*draw.device_parts(device, scope)]
    if device.measured_used_mib is None or device.measured_free_mib is None:
        yield Bar(title="by the ledger:", parts=tuple(held))
        return
    measured = [
        Part(name="used", amount=device.measured_used_mib),
        Part(name="free", amount=device.measured_free_mib, kind=Kind.FREE),
    ]
    longer = sum(part.total for part in measured) - sum(part.total for part in held if part.total > 0)
    reserve = Part(name="reserve", amount=longer, kind=Kind.RESERVE)
    beyond = Part(name="beyond the device", amount=-longer, kind=Kind.RESERVE)
    yield Bar(title="by the ledger:", parts=(*held, reserve))
    yield Bar(title="measured:", parts=(*measured, beyond))


def _wait(wait: Wait) -> str:
    lines = [f"<h3>{html.text(wait.about)}</h3>", html.line(wait.asks, "dim")]
    if answer := wait.answer:
        lines += [html.line(f"{answer.title} [{answer.reason}]", "bad"), html.line(answer.text)]
        lines += [html.line(each, "dim") for each in answer.more[:_MOST_LINES]]
        lines += [html.line(f"next: {answer.then}"), html.line(f"do: {answer.do}")]
    return f'<div class="wait">{"".join(lines)}</div>'


def _more(found: Sequence[object]) -> str:
    more = len(found) - _MOST_ROWS
    return html.line(f"and {more} more, which kubectl gpumem lists" if more > 0 else "", "dim")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, alarm: str = "", style: str = "") -> str:
    """Returns a table without its empty columns. The numbers in the column `alarm` are alarms."""
    shown = [*rows]
    kept = kept_columns(header, shown)
    return html.table(
        [header[i] for i in kept], [[row[i] for i in kept] for row in shown], _COLUMNS, alarm=alarm, style=style
    )
