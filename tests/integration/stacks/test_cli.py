"""`python -m stacks` as an operator runs it, and clusters that answer or do not."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from stacks import limits
from stacks.__main__ import main
from tests.support.prod import ROOT
from tests.support.project import change


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


def engine(project: Path, script: str) -> None:
    """A program in Pulumi's place, which leaves a mark that it ran."""
    path = project / ".toolchain" / "bin" / "pulumi"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\ntouch {project}/ran\n{script}\n")
    path.chmod(0o755)


def test_a_preview_ends_with_chart_verdict_and_pulumis_exit_code(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(project / "none"))
    engine(project, "echo error: no such thing as $7 >&2; exit 6")
    assert main(["preview", "--stack", "prod", "--", "--policy-pack", "policy", "--refresh=x"], project) == 6
    out = capsys.readouterr().out
    assert out.startswith(f"no cluster: {project / 'none'} is not there")
    assert "t4: 13300 of 14000 MiB promised" in out
    assert re.search(r"❌ the preview of prod failed \(\d+\.\d s\)\n   error: no such thing as --json\n\Z", out), out


def test_a_full_preview_has_pulumis_own_display_and_is_not_accepted_without_events(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    engine(project, "echo all of it")
    for asked in (["--full"], ["--", "--diff"]):
        assert main(["preview", "--stack", "prod", *asked], project) == 1
        out = capfd.readouterr().out
        assert out.index("all of it") < out.index("t4: 13300 of 14000 MiB promised") < out.index("before the preview")


def test_what_the_configuration_refuses_does_not_start_pulumi(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine(project, "exit 0")
    change(project, "gpumem_mib: 5000", "gpumem_mib: 0")
    assert main(["preview", "--stack", "prod"], project) == 1
    said = capsys.readouterr()
    assert (said.out, (project / "ran").exists()) == ("", False)
    assert said.err == "gpu-tenancy:residents.llama-swap.gpumem_mib: must be at least 1 (got 0)\n"


def test_a_preview_without_pulumi_says_how_to_get_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preview", "--stack", "prod"], project) == 1
    assert capsys.readouterr().err.endswith("pulumi is not there; run make toolchain\n")


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels have other limits")
def test_what_is_let_through_to_the_engine_fits_one_variable_and_little_more_does() -> None:
    def takes(characters: int) -> bool:
        try:
            subprocess.run(["true"], env={**os.environ, "PULUMI_CONFIG": "x" * characters}, check=True)
        except OSError:
            return False
        return True

    assert takes(limits.MOST_BYTES + 2000)
    assert not takes(limits.MOST_BYTES + 2048)
