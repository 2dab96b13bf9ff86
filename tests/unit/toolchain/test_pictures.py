"""Tests that each picture of the docs is up to date with its source."""

import json
import re
from collections.abc import Mapping
from html import unescape
from pathlib import Path

import pytest

from toolchain.pictures import __main__ as pictures
from toolchain.pictures import day, svg, terminal

SOURCES: Mapping[Path, tuple[Path, ...]] = pictures.sources()
RECORDED = json.loads(pictures.DEMO.read_text())


def texts(picture: str) -> list[str]:
    return [unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", picture)]


@pytest.mark.parametrize("picture", SOURCES, ids=lambda path: path.name)
def test_a_picture_is_drawn_from_its_source_as_it_is(picture: Path) -> None:
    assert svg.is_fresh(picture, *SOURCES[picture]), "run `make pictures`"


@pytest.mark.parametrize("picture", sorted(pictures.FOLDER.glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_has_text_and_loads_nothing(picture: Path) -> None:
    text = picture.read_text()
    assert "<text" in text or "<h1>" in text
    loaded = re.findall(r"(?:href|src)=\"([^\"#]+)|url\((?!#|data:|\"?data:)([^)]+)", text)
    assert loaded == []


def test_a_changed_source_makes_its_picture_stale(tmp_path: Path) -> None:
    source, picture = tmp_path / "a.d2", tmp_path / "a.svg"
    source.write_text("a")
    picture.write_text(svg.with_source_hash("<svg/>", source))
    assert svg.is_fresh(picture, source)
    source.write_text("b")
    assert not svg.is_fresh(picture, source)


def test_a_terminals_colours_and_columns_are_kept() -> None:
    drawn = terminal.terminal_picture("run <it>", "plain \x1b[1;31mred\x1b[0m end\r\n\x1b[2Kwide ✅ x\n")
    assert texts(drawn) == ["$ run <it>", "plain ", "red", " end", "wide ✅ x"]
    assert 'fill="#ff7b72"' in drawn
    assert f'x="{terminal.MARGIN + 6 * terminal.COLUMN:.1f}"' in drawn
    assert f'textLength="{9 * terminal.COLUMN:.1f}"' in drawn


def test_a_long_line_goes_on_below() -> None:
    drawn = terminal.terminal_picture("x", "a" * (terminal.MOST_COLUMNS + 1))
    assert re.findall(">(a+)</text>", drawn) == ["a" * terminal.MOST_COLUMNS, "a"]


def test_the_day_shows_each_app_and_each_step() -> None:
    shown = texts(day.day_chart(RECORDED))
    apps = {app for sample in RECORDED["samples"] for app in sample["used_mib"]}
    assert {"frigate", "tts"} <= apps <= set(shown)
    assert [f"{number} {step}" for number, step in enumerate(RECORDED["steps"], 1)] == [
        text for text in shown if re.match(r"\d \w", text)
    ]
