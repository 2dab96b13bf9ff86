"""Tests that all agents are one program. Its argument names the agent that runs."""

import pytest

from agents.__main__ import main


@pytest.mark.parametrize("arguments", [[], ["nobody"], ["gate", "now"]])
def test_anything_but_one_agents_name_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("name one agent of ")
