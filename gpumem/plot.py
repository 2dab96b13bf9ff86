"""Implements advise --plot, which draws the use, the budget and the proposed budget of each seat with matplotlib."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agents.runtime.errors import AgentError
from gpumem.proposal import Advice, UseSample

_MOST_POINTS = 2000
_INCHES = (10.0, 4.0)


class PlotError(AgentError):
    """Raised if the plot cannot be drawn."""


def write(samples: Iterable[UseSample], seats: Sequence[Advice], folder: Path, kind: str) -> list[Path]:
    """Writes a file for each seat with measured use. The plot's file has the seat's name. Raises PlotError."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 (the plugin has none)
    except ImportError as error:
        raise PlotError(
            f"--plot needs matplotlib ({error}): install it next to the wheel gpu-tenancy, or in the checkout with "
            ".toolchain/bin/uv pip install --python .venv/bin/python --require-hashes -r requirements-plot.lock"
        ) from None
    by_seat: dict[str, list[UseSample]] = {seat.seat: [] for seat in seats}
    for sample in samples:
        if sample.seat in by_seat:
            by_seat[sample.seat].append(sample)
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for seat in seats:
            if by_seat[seat.seat]:
                written.append(folder / f"{seat.seat}.{kind}")
                _draw(Figure(figsize=_INCHES, layout="constrained"), seat, by_seat[seat.seat]).savefig(written[-1])
    except OSError as error:
        raise PlotError(f"--plot {folder}: cannot be written: {error.strerror}") from None
    return written


def peaks(samples: Iterable[UseSample], most: int = _MOST_POINTS) -> list[tuple[float, float]]:
    """Returns the highest use of a replica at each time.

    If there are more than `most` times, the function divides the times into groups. Each group of times becomes one
    point with its highest use.
    """
    by_time: dict[float, float] = {}
    for sample in samples:
        by_time[sample.time] = max(sample.mib, by_time.get(sample.time, 0.0))
    moments = sorted(by_time.items())
    count = min(most, len(moments))
    spans = (moments[n * len(moments) // count : (n + 1) * len(moments) // count] for n in range(count))
    return [max(span, key=lambda moment: moment[1]) for span in spans]


def _draw(figure: Any, seat: Advice, samples: Iterable[UseSample]) -> Any:
    axes = figure.subplots()
    used = peaks(samples)
    axes.plot(
        [datetime.fromtimestamp(at, UTC) for at, _ in used], [mib for _, mib in used], label="used", linewidth=0.8
    )
    axes.axhline(seat.declared_mib, color="black", label=f"budget {seat.declared_mib}")
    if seat.proposed_mib is not None:
        axes.axhline(seat.proposed_mib, color="tab:red", linestyle="--", label=f"proposed {seat.proposed_mib}")
    axes.set(title=f"{seat.seat}: {seat.verdict}", ylabel="MiB of a replica on one device", ylim=(0, None))
    axes.legend(loc="lower left")
    return figure
