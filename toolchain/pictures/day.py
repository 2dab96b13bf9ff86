"""Draws the chart of a recorded demo: the GPU memory that each app uses over time.

`make demo ARGS="--record FILE"` writes the recording.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolchain.cluster.card import REST_MIB, TOTAL_MIB
from toolchain.demo.story import FLOOR_MIB
from toolchain.pictures.svg import element, picture

WIDTH, HEIGHT = 960, 520
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 50, 60
_LEGEND = TOP + 80  # This margin leaves space for the labels of the two dashed lines.
_COLOURS = ("#1565c0", "#2e7d32", "#e65100", "#6a1b9a", "#00838f", "#ad1457", "#5d4037")
_REST = "driver and android-emulator"


def day_chart(recorded: Mapping[str, Any]) -> str:
    """Returns the chart of a recorded demo as SVG."""
    return picture(WIDTH, HEIGHT, "The demo's day: GPU memory in use by app, over time", _Chart(recorded).parts())


class _Chart:
    def __init__(self, recorded: Mapping[str, Any]) -> None:
        self._steps: Mapping[str, float] = recorded["steps"]
        self._samples: Sequence[Mapping[str, Any]] = recorded["samples"]
        self._begin: float = min(self._steps.values())
        self._end: float = max(float(recorded["ended"]), self._begin + 1)
        apps = {app: None for sample in self._samples for app in sample["used_mib"]}
        self._apps = [_REST, *apps]

    def parts(self) -> Iterator[str]:
        yield element("rect", width=WIDTH, height=HEIGHT, fill="#ffffff")
        yield _text(LEFT, 24, "GPU memory in use (MiB) over seconds of the demo", size=16, bold=True)
        below = [0.0] * len(self._samples)
        for number, app in enumerate(self._apps):
            colour = "#9e9e9e" if app == _REST else _COLOURS[(number - 1) % len(_COLOURS)]
            above = [base + self._used(sample, app) for base, sample in zip(below, self._samples, strict=True)]
            yield element("path", d=self._area(below, above), fill=colour, fill_opacity=0.75)
            yield element("rect", x=WIDTH - RIGHT + 14, y=_LEGEND + 20 * number, width=12, height=12, fill=colour)
            yield _text(
                WIDTH - RIGHT + 32, _LEGEND + 10 + 20 * number, app.replace(" and android-emulator", " and rest")
            )
            below = above
        yield from self._lines()

    def _used(self, sample: Mapping[str, Any], app: str) -> float:
        return float(REST_MIB if app == _REST else sample["used_mib"].get(app, 0))

    def _area(self, below: Sequence[float], above: Sequence[float]) -> str:
        """Returns the outline of the area that shows an app's use. A sample of use is valid until the next sample."""
        times = [max(float(sample["seconds"]), self._begin) for sample in self._samples]
        spans = list(zip(times, [*times[1:], self._end], strict=True))
        upper = [point for span, mib in zip(spans, above, strict=True) for point in self._points(span, mib)]
        lower = [point for span, mib in zip(spans, below, strict=True) for point in self._points(span, mib)]
        return "M" + " L".join([*upper, *reversed(lower)]) + " Z"

    def _points(self, span: tuple[float, float], mib: float) -> list[str]:
        return [f"{self._x(seconds):.1f},{self._y(mib):.1f}" for seconds in span]

    def _lines(self) -> Iterator[str]:
        for mib, label in (
            (TOTAL_MIB, f"{TOTAL_MIB}: the device"),
            (TOTAL_MIB - FLOOR_MIB, f"floor: {FLOOR_MIB} free"),
        ):
            y = self._y(mib)
            yield element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, stroke="#b71c1c", stroke_dasharray="6 4")
            yield _text(WIDTH - RIGHT + 6, y + 4, label, colour="#b71c1c")
        for mib in range(0, TOTAL_MIB, 4000):
            yield _text(LEFT - 8, self._y(mib) + 4, f"{mib}", anchor="end")
        for number, (step, seconds) in enumerate(self._steps.items(), 1):
            x = self._x(seconds)
            yield element("line", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM, stroke="#424242", stroke_width=1)
            yield _text(x + 3, HEIGHT - BOTTOM + 16 + 15 * ((number - 1) % 3), f"{number} {step}")

    def _x(self, seconds: float) -> float:
        return round(LEFT + (seconds - self._begin) / (self._end - self._begin) * (WIDTH - LEFT - RIGHT), 1)

    def _y(self, mib: float) -> float:
        return round(HEIGHT - BOTTOM - mib / (TOTAL_MIB * 1.02) * (HEIGHT - TOP - BOTTOM), 1)


def _text(
    x: float, y: float, text: str, *, size: int = 12, bold: bool = False, anchor: str = "start", colour: str = "#212121"
) -> str:
    weight = "bold" if bold else "normal"
    return element(
        "text",
        text,
        x=x,
        y=y,
        font_family="sans-serif",
        font_size=size,
        font_weight=weight,
        text_anchor=anchor,
        fill=colour,
    )
