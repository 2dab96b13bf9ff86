"""Whatever is written into a stack file, chart, program and schema read the same, or it is refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from jsonschema import Draft7Validator

from stacks import schema, settings, stackfile
from tenancy.names import PROJECT
from tests.support import search
from tests.support.stack_texts import stack_texts

VALIDATOR = Draft7Validator(schema.stack_file_schema())


@search.examples(60, soak=5000)
@given(stack_texts())
def test_what_chart_and_settings_accept_the_schema_and_the_program_accept(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "Pulumi.generated.yaml"
    path.write_text(text)
    try:
        declared = settings.load_file(path)
    except settings.ConfigError:
        return
    contents = stackfile.read(path)
    assert [error.message for error in VALIDATOR.iter_errors({"config": contents.values})] == []
    assert _of_the_engine(path.parent, contents) == declared
    assert _in_a_file_of_its_own(path, text).model_copy(update={"files": []}) == declared


def _in_a_file_of_its_own(path: Path, text: str) -> settings.StackSettings:
    """What is the project's goes into a file that the stack file names; a provider's key stays."""
    lines = [line[2:] for line in text.splitlines() if line.startswith("  ")]
    stays = [line for line in lines if line.startswith("kubernetes:")]
    path.with_name("parts.yaml").write_text("\n".join(line for line in lines if line not in stays))
    path.write_text("\n  ".join(["config:", "files: [parts.yaml]", *stays]))
    return settings.load_file(path)


def _of_the_engine(folder: Path, contents: stackfile.Contents) -> settings.StackSettings:
    """What the program takes from what the engine hands over: each key with the project's name, its value as JSON."""
    config = {f"{PROJECT}:{name}": json.dumps(value) for name, value in contents.values.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PULUMI_CONFIG", json.dumps(config))
        patch.setattr("pulumi.get_stack", lambda: "generated")
        patch.chdir(folder)
        return settings.load()
