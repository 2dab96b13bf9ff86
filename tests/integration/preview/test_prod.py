"""The prod stack, previewed by the real engine with its real provider under the policy pack."""

import re

import pytest

from tests.preview.cli import Workspace
from tests.preview.mistakes import ALL_REFUSED, GATED, REFUSED, Config, Mistake, make_all_refused


def test_prod_passes_the_gate_and_leaves_its_stack_file_as_it_was(space: Workspace) -> None:
    before = space.stack_file.read_text()
    outcome = space.preview()
    assert outcome.code == 0, outcome.text
    assert "warning" not in outcome.text
    assert "$PATH" not in outcome.text
    assert re.search(r"\+ \d\d+ to create", outcome.text)
    assert space.stack_file.read_text() == before


@pytest.mark.parametrize("mistake", GATED.values(), ids=GATED.keys())
def test_the_gate_refuses_a_single_mistake(space: Workspace, mistake: Mistake) -> None:
    space.change(mistake.make)
    outcome = space.preview()
    assert outcome.code != 0
    assert mistake.message in outcome.text
    assert "[mandatory]" in outcome.text
    assert "Traceback" not in outcome.text


@pytest.mark.parametrize("mistake", REFUSED.values(), ids=REFUSED.keys())
def test_the_settings_refuse_a_single_mistake(space: Workspace, mistake: Mistake) -> None:
    space.change(mistake.make)
    outcome = space.preview()
    assert outcome.code != 0
    assert mistake.message in outcome.text
    assert "Traceback" not in outcome.text


def test_all_refusals_come_at_once(space: Workspace) -> None:
    space.change(make_all_refused)
    outcome = space.preview()
    assert outcome.code != 0
    assert [message for message in ALL_REFUSED if message not in outcome.text] == []


def test_a_stack_without_the_optional_parts_passes(space: Workspace) -> None:
    def change(config: Config) -> None:
        for key in set(config) - {"cluster", "pools"}:
            del config[key]

    space.change(change)
    outcome = space.preview()
    assert outcome.code == 0, outcome.text


def test_a_corrupt_stack_file_is_one_clear_error(space: Workspace) -> None:
    space.stack_file.write_text("config: [\n")
    outcome = space.preview()
    assert outcome.code != 0
    assert "Traceback" not in outcome.text
    assert "panic" not in outcome.text


def test_a_missing_passphrase_is_one_clear_error(space: Workspace) -> None:
    env = {key: value for key, value in space.env.items() if key != "PULUMI_CONFIG_PASSPHRASE"}
    outcome = Workspace(space.folder, env).preview()
    assert outcome.code != 0
    assert "passphrase" in outcome.text
    assert "Traceback" not in outcome.text


def test_an_unreachable_cluster_does_not_hide_the_gate(space: Workspace) -> None:
    kubeconfig = str(space.unreachable())
    assert space.preview(KUBECONFIG=kubeconfig).code == 0
    mistake = GATED["a budget is raised over the card"]
    space.change(mistake.make)
    over = space.preview(KUBECONFIG=kubeconfig)
    assert over.code != 0
    assert mistake.message in over.text
