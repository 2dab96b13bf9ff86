"""The commands of `python -m stacks`, within this process."""

import sys
from pathlib import Path

import pytest

from stacks import schema
from stacks.__main__ import EXAMPLE, main
from tests.support.project import change


def test_an_overrun_is_marked_but_not_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(project, "gpumem_mib: 5000", "gpumem_mib: 7000")
    assert main(["chart", "--stack", "prod"], project) == 0
    assert "OVER by 1300 MiB" in capsys.readouterr().out


def test_a_refused_stack_prints_its_lines_on_stderr(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(project, "gpumem_mib: 5000", "gpumem_mib: 5Gi")
    assert main(["chart", "--stack", "prod"], project) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "gpu-tenancy:residents.llama-swap.gpumem_mib: must be a whole number of MiB without a unit; write 5120 "
        "(got '5Gi')\n"
    )


def test_a_stack_without_a_file_is_a_sentence(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chart", "--stack", "staging"], project) == 1
    assert (
        capsys.readouterr().err
        == f"{project}/Pulumi.staging.yaml is not there; begin with make new-stack STACK=staging\n"
    )


@pytest.mark.parametrize(("no_colour", "coloured"), [("", True), ("1", False)])
def test_a_terminal_gets_colour_unless_it_wants_none(
    no_colour: str,
    coloured: bool,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", no_colour)
    assert main(["chart", "--stack", "prod"], project) == 0
    assert ("\x1b[" in capsys.readouterr().out) is coloured


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == schema.render()
    assert main(["schema", "--parts"]) == 0
    assert capsys.readouterr().out == schema.render(parts=True)


def test_a_new_stack_is_a_copy_of_the_example(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "--stack", "home"], project) == 0
    schema, _, rest = (project / "Pulumi.home.yaml").read_text().partition("\n#\n")
    assert schema == "# yaml-language-server: $schema=docs/config.schema.json"
    assert rest == (project / EXAMPLE).read_text()
    assert "make preview STACK=home" in capsys.readouterr().out


def test_a_stack_that_is_there_is_not_overwritten(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "Pulumi.home.yaml").write_text("mine")
    assert main(["new", "--stack", "home"], project) == 1
    assert (project / "Pulumi.home.yaml").read_text() == "mine"
    assert capsys.readouterr().err == "Pulumi.home.yaml is there already; remove it or choose another name\n"


def test_no_half_stack_is_left_where_the_example_is_missing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / EXAMPLE).unlink()
    assert main(["new", "--stack", "home"], project) == 1
    assert not (project / "Pulumi.home.yaml").exists()
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../etc", "a b", "", "x" * 101, "lab\n"])
def test_a_stack_is_no_path(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["new", "--stack", name])
    assert left.value.code == 2
    assert "write the NAME of a Pulumi.NAME.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "is not there; set KUBECONFIG, or start a throw-away: make cluster"),
        ("{}", "names no current-context; run kubectl config use-context"),
        ("current-context: x", "has no server for the context x"),
        ("{current-context: x, contexts: [{name: x}], clusters: 5}", "has no server for the context x"),
        ("{current-context: x, contexts: {x: y}}", "has no server for the context x"),
        ("- a list", "names no current-context; run kubectl config use-context"),
        ("[", "cannot be read as YAML"),
    ],
)
def test_no_cluster_is_a_sentence(
    text: str | None,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert main(["cluster"]) == 1
    assert capsys.readouterr().err == f"no cluster: {path} {reason}\n"
