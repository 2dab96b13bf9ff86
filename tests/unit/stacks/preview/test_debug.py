"""Tests that debug messages reach Pulumi's engine only with --debug."""

import pulumi
import pytest

from stacks.preview import debug


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setattr(pulumi.log, "debug", pulumi.log.debug)
    monkeypatch.setattr(pulumi.log, "get_engine", lambda: "engine")
    monkeypatch.setattr(pulumi.log, "_log", lambda _engine, _severity, message, *_: told.append(message))
    return told


@pytest.mark.parametrize(
    ("arguments", "shown"), [((), False), (("--diff",), False), (("--debug",), True), (("-d",), True)]
)
def test_what_nobody_reads_is_not_sent(arguments: tuple[str, ...], shown: bool, sent: list[str]) -> None:
    debug.drop_debug_messages(debug.debug_environment(arguments))
    pulumi.log.debug("a step", stream_id=1)
    pulumi.log.warn("a warning")
    assert sent == (["a step"] if shown else []) + ["a warning"]
