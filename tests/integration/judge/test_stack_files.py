"""Tests that Pulumi's engine, the JSON schema and our settings read a stack file in the same way."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft7Validator

from stacks import schema, settings, stackfile
from tenancy.names import PROJECT
from tests.support import search
from tests.support.stack_texts import stack_texts
from tests.support.workspace import Workspace, workspace
from toolchain.cluster.paths import TOOLCHAIN

VALIDATOR = Draft7Validator(schema.stack_file_schema())


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    space = workspace(tmp_path_factory.mktemp("engine"))
    made = space.pulumi("stack", "init", "generated", cwd=space.project)
    assert made.code == 0, made.text
    return space


@search.examples(20, soak=500)
@given(stack_texts())
def test_the_engine_and_an_editor_read_what_the_settings_accept(engine: Workspace, text: str) -> None:
    path = engine.project / "generated.yaml"
    path.write_text(text)
    try:
        settings.load_file(path)
    except settings.ConfigError:
        return
    ours = stackfile.read(path).values
    assert [error.message for error in VALIDATOR.iter_errors({"config": ours})] == []
    theirs = _theirs(engine, path)
    said = {name for name, value in ours.items() if value != {}}  # Pulumi's engine sometimes adds empty maps.
    assert {name: theirs.get(name) for name in said} == {name: ours[name] for name in said}


def _theirs(engine: Workspace, path: Path) -> dict[str, Any]:
    command = [TOOLCHAIN / "bin" / "pulumi", "config", "--json", "--stack", "generated", "--config-file", path.name]
    done = subprocess.run(
        [*command, "--non-interactive"], cwd=engine.project, env=engine.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {
        key.removeprefix(f"{PROJECT}:"): _json(entry["value"])
        for key, entry in json.loads(done.stdout).items()
        if key.startswith(f"{PROJECT}:")
    }


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
