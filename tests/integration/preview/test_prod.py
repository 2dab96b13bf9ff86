"""The prod stack, previewed by the real engine with its real provider under the policy pack."""

import json
import re
from dataclasses import replace

import pytest

from tests.integration.preview.mistakes import (
    ALL_REFUSED,
    GATED,
    GROUPS,
    REFUSED,
    Config,
    assert_refused,
    make_all_refused,
    make_group,
)
from tests.support import graphs
from tests.support.prod import declared, raw, refusal
from toolchain.workspace import Workspace


def test_prod_passes_the_gate_and_leaves_its_stack_file_as_it_was(space: Workspace) -> None:
    before = space.stack_file.read_text()
    outcome = space.preview()
    assert outcome.code == 0, outcome.text
    assert "warning" not in outcome.text
    assert "$PATH" not in outcome.text
    assert re.search(r"\+ \d\d+ to create", outcome.text)
    assert space.stack_file.read_text() == before


@pytest.mark.parametrize("name", GATED)
def test_a_single_mistake_breaks_the_rule_that_names_it(name: str) -> None:
    """The rules alone, without an engine: each mistake is enough."""
    config = raw()
    GATED[name].make(config)
    reported = graphs.judge(declared(config))
    assert any(GATED[name].message in line for line in reported), reported


@pytest.mark.parametrize("group", GROUPS[1:], ids=lambda group: group[0])
def test_the_engine_refuses_mistakes_by_the_rules_that_name_them(space: Workspace, group: tuple[str, ...]) -> None:
    """Also where all of it stands in files, of which the engine knows the folder's name."""
    space.change(lambda config: make_group(config, group))
    space.change(lambda config: into_files(config, space))
    assert_refused(space.preview(), group)


def into_files(config: Config, space: Workspace) -> None:
    """Every part in a file of its own."""
    folder = space.project / "stacks.d"
    folder.mkdir()
    for part in list(config):
        (folder / f"{part}.yaml").write_text(json.dumps({part: config.pop(part)}))
    config["files"] = ["stacks.d"]


def test_an_unreachable_cluster_hides_none_of_them(space: Workspace) -> None:
    """The provider then takes every kind for one of a namespace."""
    space.change(lambda config: make_group(config, GROUPS[0]))
    outcome = space.preview(KUBECONFIG=str(space.unreachable()))
    assert_refused(replace(outcome, text=outcome.text.replace(" default/", " ")), GROUPS[0])


def test_every_rule_is_shown_to_the_engine() -> None:
    shown = [name for group in GROUPS for name in group]
    assert len(shown) == len(set(shown))
    assert {rule(name) for name in shown} == {rule(name) for name in GATED}


def rule(name: str) -> str:
    return GATED[name].message.partition(":")[0]


@pytest.mark.parametrize("name", REFUSED)
def test_the_settings_refuse_a_single_mistake(name: str) -> None:
    assert any(REFUSED[name].message in line for line in refusal(REFUSED[name].make))


def test_the_engine_tells_all_that_the_settings_refuse_at_once(space: Workspace) -> None:
    space.change(make_all_refused)
    outcome = space.preview()
    assert outcome.code != 0
    assert [message for message in ALL_REFUSED if message not in outcome.text] == []
    assert "Traceback" not in outcome.text


def test_a_stack_without_the_optional_parts_passes_also_before_a_cluster_that_is_out_of_reach(space: Workspace) -> None:
    def change(config: Config) -> None:
        for key in set(config) - {"cluster", "pools"}:
            del config[key]
        into_files(config, space)

    space.change(change)
    outcome = space.preview(KUBECONFIG=str(space.unreachable()))
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
