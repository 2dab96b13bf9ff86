"""Runs the commands of `python -m stacks` in the process of the test."""

from pathlib import Path

import pytest

from stacks.__main__ import COMMANDS, main
from stacks.commands import EXAMPLE
from tests.support.paths import ROOT
from tests.support.project import change


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("previw --stack prod", "invalid choice: 'previw'"),
        ("chart", "the following arguments are required: --stack"),
        ("chart --stac prod", "the following arguments are required: --stack"),
        ("up --stack prod --target urn", "unrecognized arguments: --target"),
    ],
)
def test_a_typing_error_is_a_sentence(arguments: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments.split())
    assert left.value.code == 2
    assert error in capsys.readouterr().err


def test_an_overrun_is_marked_but_not_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(project, "gpumem_mib: 5000", "gpumem_mib: 7000")
    assert main(["chart", "--stack", "prod"], project) == 0
    assert "OVER by 1336 MiB" in capsys.readouterr().out


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"new", "schema"}))
def test_a_stack_without_a_file_is_a_sentence(command: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", "manifests"] if command == "render" else []
    assert main([command, "--stack", "staging", *out], project) == 1
    assert (
        capsys.readouterr().err
        == f"{project}/Pulumi.staging.yaml is not there; begin with make new-stack STACK=staging\n"
    )


def test_the_schemas_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs/reference").mkdir(parents=True)
    (tmp_path / "Pulumi.yaml").write_text((ROOT / "Pulumi.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    assert main(["schema"]) == 0
    assert (tmp_path / "docs/reference/settings.md").read_text() == (ROOT / "docs/reference/settings.md").read_text()


def test_a_new_stack_is_a_copy_of_the_example(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "--stack", "home"], project) == 0
    schema, _, rest = (project / "Pulumi.home.yaml").read_text().partition("\n#\n")
    assert schema == "# yaml-language-server: $schema=docs/config.schema.json"
    assert rest == (project / EXAMPLE).read_text()
    assert "make preview STACK=home" in capsys.readouterr().out


def test_a_stack_that_is_there_is_not_overwritten(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "--stack", "prod"], project) == 1
    assert (project / "Pulumi.prod.yaml").read_text() == (project / EXAMPLE).read_text()
    assert capsys.readouterr().err == "Pulumi.prod.yaml is there already; remove it or choose another name\n"
