"""The engine's reading of stack files: what ours takes without a word is the same to `pulumi config`."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given

from stacks import problems, stackfile
from stacks.settings import StackSettings
from tenancy.names import PROJECT
from tests.support import search
from tests.support.stack_texts import stack_texts
from toolchain.cluster.paths import TOOLCHAIN
from toolchain.workspace import Workspace, workspace


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    space = workspace(tmp_path_factory.mktemp("engine"))
    made = space.pulumi("stack", "init", "generated", cwd=space.project)
    assert made.code == 0, made.text
    return space


@search.examples(8, soak=500)
@given(stack_texts())
def test_the_engine_reads_what_we_read(engine: Workspace, text: str) -> None:
    path = engine.project / "generated.yaml"
    path.write_text(text)
    ours = _ours(path)
    assume(ours is not None)
    theirs = _theirs(engine, path)
    assert {name: theirs.get(name) for name in ours or {}} == ours


def _ours(path: Path) -> Mapping[str, Any] | None:
    """Keys that have a value; None for a file of which we say something. The engine fills empty maps in, and what is
    encrypted it does not show: both are refused before anything is compared."""
    try:
        contents = stackfile.read(path)
    except stackfile.StackFileError:
        return None
    known = contents.values.keys() <= StackSettings.model_fields.keys()
    strange = contents.problems or problems.foreign(contents.foreign, StackSettings)
    if strange or not known or list(stackfile.encrypted(contents.values)):
        return None
    return {name: value for name, value in contents.values.items() if value not in ({}, None)}


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
