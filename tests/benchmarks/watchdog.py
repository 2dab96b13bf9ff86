"""`python -m tests.benchmarks.watchdog`: our watchdog and record 0000's polling design on the same curves, as
docs/watchdog.md has it. Simulated and without chance: the same figures on every machine."""

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from tests.support.replay import REPLAYS, Design, Ours, Polling, Replay, Told

PHASES = range(0, 60, 10)  # seconds of the minute at which a replay begins


def table() -> str:
    """In Markdown."""
    head = ("replay", "watchdog", "under the floor, s", "neighbours denied, s", "recycles", "of these wrong")
    return "\n".join(map(_row, (head, ("---",) * len(head), *_rows()))) + "\n"


def _rows() -> Iterator[Sequence[str]]:
    designs: dict[str, Callable[[], Design]] = {"ours": Ours, "record 0000's": Polling}
    for replay in REPLAYS:
        for name, design in designs.items():
            told = [replay.under(design(), phase=phase) for phase in PHASES]
            yield _cells(replay, name, told)


def _cells(replay: Replay, name: str, told: Sequence[Told]) -> Sequence[str]:
    return (
        replay.name,
        name,
        _spread([each.recovery_seconds or 0 for each in told]),
        _spread([each.denied_seconds for each in told]),
        _spread([len(each.outcome.recycled) for each in told]),
        _spread([each.outcome.wrong for each in told]),
    )


def _spread(values: Sequence[int]) -> str:
    """The median, and the worst where it differs."""
    middle, worst = round(median(values)), max(values)
    return str(middle) if middle == worst else f"{middle} (worst {worst})"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(table(), end="")
