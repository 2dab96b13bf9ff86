"""`python -m stacks` as an operator runs it."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from stacks import schema
from stacks.__main__ import main
from tests.stacks.prod import PROD, ROOT


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project's folder with prod and an example in it."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "one-gpu.yaml").write_text(PROD.read_text())
    (tmp_path / "Pulumi.prod.yaml").write_text(PROD.read_text())
    return tmp_path


def change(project: Path, old: str, new: str) -> None:
    path = project / "Pulumi.prod.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stacks", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_chart_of_prod_is_printed_without_colour_into_a_pipe() -> None:
    done = run("chart", "--stack", "prod")
    assert (done.returncode, done.stderr) == (0, "")
    assert "t4: 13300 of 14000 MiB promised, 700 free" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_terminal_without_block_characters_gets_the_chart_all_the_same() -> None:
    done = run("chart", "--stack", "prod", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "?llama-swap 5000" in done.stdout


def test_a_chart_can_be_cut_short_by_its_reader() -> None:
    command = f"{sys.executable} -m stacks schema | head -n 1"
    done = subprocess.run(["/bin/sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("{\n", "")


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


def test_a_new_stack_is_a_copy_of_the_example(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "--stack", "home"], project) == 0
    assert (project / "Pulumi.home.yaml").read_text() == (project / "examples" / "one-gpu.yaml").read_text()
    assert "make preview STACK=home" in capsys.readouterr().out


def test_a_stack_that_is_there_is_not_overwritten(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "Pulumi.home.yaml").write_text("mine")
    assert main(["new", "--stack", "home"], project) == 1
    assert (project / "Pulumi.home.yaml").read_text() == "mine"
    assert capsys.readouterr().err == "Pulumi.home.yaml is there already; remove it or choose another name\n"


def test_no_half_stack_is_left_where_the_example_is_missing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "examples" / "one-gpu.yaml").unlink()
    assert main(["new", "--stack", "home"], project) == 1
    assert not (project / "Pulumi.home.yaml").exists()
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../etc", "a b", "", "x" * 101])
def test_a_stack_is_no_path(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["new", "--stack", name])
    assert left.value.code == 2
    assert "a stack's name has letters, digits, '-', '_' and '.'" in capsys.readouterr().err


def kubeconfig(folder: Path, name: str, **content: object) -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def server() -> Iterator[str]:
    """The address of something that listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"


def test_the_cluster_is_found_across_several_files_as_kubectl_does(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing"
    clusters = [{"name": "a", "cluster": {"server": server}}]
    contexts = [{"name": "prod", "context": {"cluster": "a"}}]
    first = kubeconfig(tmp_path, "first", clusters=clusters, **{"current-context": ""})
    second = kubeconfig(tmp_path, "second", contexts=contexts, **{"current-context": "prod"})
    third = kubeconfig(
        tmp_path, "third", clusters=[{"name": "a", "cluster": {"server": "https://other"}}], **{"current-context": "x"}
    )
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, ["", missing, first, second, third])))
    assert main(["cluster"]) == 0
    assert capsys.readouterr().out == f"context prod at {server}\n"


def test_without_kubeconfig_the_home_folder_is_asked(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".kube").mkdir()
    kubeconfig(
        tmp_path,
        ".kube/config",
        clusters=[{"name": "a", "cluster": {"server": server}}],
        contexts=[{"name": "home", "context": {"cluster": "a"}}],
        **{"current-context": "home"},
    )
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["cluster"]) == 0
    assert capsys.readouterr().out == f"context home at {server}\n"


def gone(tmp_path: Path, **cluster: str) -> Path:
    """A kubeconfig whose server does not answer: nobody listens on a port that was just let go."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"https://127.0.0.1:{listening.getsockname()[1]}"
    return kubeconfig(
        tmp_path,
        "gone",
        clusters=[{"name": "a", "cluster": {"server": address, **cluster}}],
        contexts=[{"name": "lab", "context": {"cluster": "a"}}],
        **{"current-context": "lab"},
    )


def test_a_cluster_that_does_not_answer_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(gone(tmp_path)))
    assert main(["cluster"]) == 1
    assert re.fullmatch(
        r"no cluster: context lab at https://127.0.0.1:\d+ does not answer \(Connection refused\)\n",
        capsys.readouterr().err,
    )


def test_a_preview_may_do_without_a_cluster_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(gone(tmp_path)))
    assert main(["cluster", "--optional"]) == 0
    assert capsys.readouterr().out.endswith("does not answer (Connection refused); the program is judged without one\n")


def test_what_is_behind_a_proxy_is_taken_at_its_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(gone(tmp_path, **{"proxy-url": "http://proxy"})))
    assert main(["cluster"]) == 0
    assert capsys.readouterr().out.startswith("context lab at ")


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
