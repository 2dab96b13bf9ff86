"""Tests the commands of `python -m stacks`. A script replaces the Pulumi CLI."""

import io
import json
import os
import pwd
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from stacks import commands, waits
from stacks.__main__ import main
from stacks.cluster import connect
from stacks.settings import load_file
from tenancy.ledger import Ledger
from tests.support.cluster_objects import Objects, namespace
from tests.support.prod import ROOT
from tests.support.project import change
from tests.support.streams import lines, step, urn

SALT = "encryptionsalt: v1:abc=:v1:def=="


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stacks", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_ledger_of_a_stack_is_a_configuration_of_the_policy_pack() -> None:
    done = run("ledger", "--stack", "prod")
    assert (done.returncode, done.stderr) == (0, "")
    configured = json.loads(done.stdout)["gpu-tenancy"]
    assert Ledger.from_data(configured["ledger"], ignored=[]) == load_file(ROOT / "Pulumi.prod.yaml").ledger()
    assert configured["stack"] == "gpu-tenancy/prod"
    assert [*configured["memory_pools"]]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    config = tmp_path / "kubeconfig"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = f"https://127.0.0.1:{listening.getsockname()[1]}"
        config.write_text(
            "{current-context: lab, contexts: [{name: lab, context: {cluster: a}}], "
            f"clusters: [{{name: a, cluster: {{server: '{server}'}}}}]}}"
        )
        monkeypatch.setenv("KUBECONFIG", str(config))
        monkeypatch.setattr(commands, "connect", lambda _: nullcontext(Objects()))
        yield f"context lab at {server}"


def engine(project: Path, script: str, select: str = "", state: Sequence[object] = ()) -> None:
    deployment = json.dumps({"deployment": {"resources": state}})
    path = project / ".toolchain" / "bin" / "pulumi"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'#!/bin/sh\n[ "$1" = -C ] && {{ {select or ":"}; exit; }}\n'
        f'echo "$*" >> {project}/calls\n'
        f'[ "$1 $2" = "stack export" ] && {{ echo \'{deployment}\'; exit; }}\n'
        f"{script}\n"
    )
    path.chmod(0o755)


def calls(project: Path) -> list[str]:
    noted = project / "calls"
    return noted.read_text().splitlines() if noted.exists() else []


LOGGED = "--suppress-progress --event-log EVENTS"


def steps(project: Path) -> list[str]:
    """Returns the calls of Pulumi that preview or change the stack."""
    found = [call for call in calls(project) if not call.startswith("stack")]
    return [re.sub(r"(?<=--event-log )\S+", "EVENTS", call) for call in found]


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_a_preview_ends_with_chart_verdict_and_pulumis_exit_code(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(project / "none"))
    engine(project, "echo error: no such thing as $7 >&2; exit 6")
    assert main(["preview", "--stack", "prod", "--", "--refresh=x"], project) == 6
    out = capsys.readouterr().out
    assert out.startswith(f"no cluster: {project / 'none'} is not there")
    assert "the program is judged without one\n" in out
    assert "t4: 13336 of 14000 MiB promised" in out
    assert re.search(r"❌ the preview of prod failed \(\d+\.\d s\)\n   error: no such thing as --refresh=x\n\Z", out), (
        out
    )


def test_a_full_preview_has_pulumis_own_display_and_is_not_accepted_without_events(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    engine(project, "echo all of it")
    for asked in (["--full"], ["--", "--diff"]):
        assert main(["preview", "--stack", "prod", *asked], project) == 1
        out = capfd.readouterr().out
        assert out.index("all of it") < out.index("t4: 13336 of 14000 MiB promised") < out.index("before the preview")


@pytest.mark.parametrize("command", ["preview", "up"])
def test_what_is_refused_does_not_start_pulumi(command: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine(project, "exit 0")
    assert main([command, "--stack", "prod", "--", "--target", "urn", "--policy-pack-config=off.json"], project) == 1
    assert capsys.readouterr().err == (
        "--target: the policy pack judges a stack as a whole; leave it out\n"
        "--policy-pack-config: it can switch the policy pack off; leave it out\n"
    )
    change(project, "gpumem_mib: 5000", "gpumem_mib: 0")
    assert main([command, "--stack", "prod"], project) == 1
    assert capsys.readouterr().err == "gpu-tenancy:residents.llama-swap.gpumem_mib: must be at least 1 (got 0)\n"
    assert calls(project) == []


ACCEPTED = "\n".join(
    [
        '{"sequence":0,"policyAnalyzeStackSummaryEvent":{"policyPackName":"gpu-tenancy","passed":["gpu-tenancy"]}}',
        '{"sequence":1,"summaryEvent":{"result":"succeeded"}}',
    ]
)


def test_up_applies_what_was_accepted_and_confirmed(
    project: Path, cluster: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine(project, f"[ $1 = preview ] && echo '{ACCEPTED}' || exit 7")
    answer(monkeypatch, "yes\n")
    assert main(["up", "--stack", "prod", "--", "--refresh"], project) == 7
    gate = "--policy-pack policy --suppress-outputs"
    assert steps(project) == [
        f"preview --stack prod {gate} --refresh --json --non-interactive --color never",
        f"up --stack prod --suppress-outputs --skip-preview --yes --refresh {LOGGED}",
    ]
    out, err = capsys.readouterr()
    assert out.endswith("\nup prod; all steps are in build/logs/prod-up.log\nup prod: nothing done (0 s)\n")
    assert err.endswith("make up has failed with 7; after a repair, the same command goes on\n")
    assert out.index("✅ gpu-tenancy accepts prod") < out.index(f"\nApply prod: {cluster}\nType yes to go on: ")


LATER = 'sed -i \'s/"resources"/"manifest": {"time": "later"}, &/\' .toolchain/bin/pulumi'


@pytest.mark.parametrize("command", ["up", "destroy"])
def test_nothing_is_changed_if_another_command_has_ended_since_the_preview(
    command: str, project: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine(project, f"case $* in *preview*) cd {project}; {LATER}; echo '{ACCEPTED}';; esac; exit 0")
    assert main([command, "--stack", "prod", "--yes"], project) == 1
    told = "The state of prod has changed since the preview, for example by another command; run this command again.\n"
    assert capsys.readouterr().err == told
    assert "preview" in steps(project)[-1]


def stored(project: Path) -> Path:
    """Writes the state file of prod, which only a folder as the backend has."""
    file = project / ".state/.pulumi/stacks/gpu-tenancy/prod.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    return file


@pytest.mark.parametrize(("command", "preview"), [("up", "preview"), ("destroy", "destroy")])
def test_a_command_runs_pulumi_three_times(command: str, preview: str, project: Path, cluster: str) -> None:
    stored(project)
    engine(project, f"[ $1 = preview ] && echo '{ACCEPTED}'; exit 0", f"echo select >> {project}/calls")
    assert main([command, "--stack", "prod", "--yes"], project) == 0
    assert [call.split(" --")[0] for call in calls(project)] == ["stack export", preview, command]


@pytest.mark.parametrize("command", ["up", "destroy"])
def test_nothing_is_changed_if_the_state_file_is_another_since_the_preview(
    command: str, project: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine(project, f"case $* in *preview*) echo later > {stored(project)}; echo '{ACCEPTED}';; esac; exit 0")
    assert main([command, "--stack", "prod", "--yes"], project) == 1
    assert capsys.readouterr().err.startswith("prod.json has changed since the preview, for example by another command")


@pytest.mark.parametrize("asked", [None, "false"])
@pytest.mark.parametrize("command", ["up", "destroy", "refresh"])
def test_the_state_is_written_only_at_the_end_unless_the_operator_asks_for_each_step(
    command: str, asked: str | None, project: Path, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PULUMI_SKIP_CHECKPOINTS", raising=False)
    if asked:
        monkeypatch.setenv("PULUMI_SKIP_CHECKPOINTS", asked)
    skipped = f"echo ${{PULUMI_SKIP_CHECKPOINTS-unset}} > {project}/skips"
    engine(project, f"[ $1 = {command} ] && {skipped}; [ $1 = preview ] && echo '{ACCEPTED}'; exit 0")
    assert main([command, "--stack", "prod", "--yes"], project) == 0
    assert (project / "skips").read_text() == f"{asked or True}\n".lower()


def test_a_rollout_is_never_cancelled_for_a_reason_that_may_pass_by_itself(
    project: Path, cluster: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the fix, a rollout got SIGINT after 12 s, while the cluster autoscaler still thought about a node."""
    path = "/api/v1/namespaces/gpu/events"
    about = {"kind": "Pod", "name": "reconcile-x", "uid": "x"}
    stuck = {"metadata": {}, "reason": "FailedScheduling", "message": "3 Insufficient cpu", "involvedObject": about}
    monkeypatch.setattr(commands, "connect", lambda _: nullcontext(Objects({path: [stuck]})))
    monkeypatch.setattr(waits, "PATIENCE_SECONDS", 0)
    job = step("create", urn("Job", "reconcile"), parent="")
    job["resourcePreEvent"]["metadata"]["new"]["inputs"] = {"metadata": {"name": "reconcile", "namespace": "gpu"}}
    (project / "job").write_text("".join(lines([job])))
    waiting = f"trap 'echo signalled >&2; exit 9' INT TERM; cat {project}/job > \"$last\"; sleep 2.5; exit 0"
    engine(project, f"[ $1 = preview ] && {{ echo '{ACCEPTED}'; exit; }}; for last; do :; done; {waiting}")
    assert main(["up", "--stack", "prod", "--yes"], project) == 0
    assert (project / "build/logs/prod-up.log").read_text() == ""
    assert capsys.readouterr().out.endswith(
        "  waits for Job gpu/reconcile; the cluster says of Pod gpu/reconcile-x: FailedScheduling: 3 Insufficient cpu\n"
        "    It goes on when this passes. Repair it meanwhile, or end with Ctrl-C.\n"
        "up prod: nothing done (3 s)\n"
    )


@pytest.mark.parametrize("changed", ["__main__.py", "Pulumi.prod.yaml"])
def test_nothing_is_applied_if_the_program_is_another_since_the_preview(
    changed: str, project: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine(project, f"[ $1 = preview ] && {{ echo '# later' >> {project}/{changed}; echo '{ACCEPTED}'; }}; exit 0")
    assert main(["up", "--stack", "prod", "--yes"], project) == 1
    assert capsys.readouterr().err.startswith(f"{changed} has changed since the preview, ")
    assert steps(project)[-1].startswith("preview")


PATCH = "kubernetes:core/v1:NamespacePatch"


@pytest.mark.parametrize(
    ("uids", "refused"),
    [({"kube-system": "1"}, False), ({"immich": "1", "kube-system": "2"}, True), ({"immich": "2"}, False)],
    ids=["the same", "another", "not yet rolled out"],
)
def test_a_command_stops_before_anything_else_if_the_state_is_of_another_cluster(
    *,
    uids: dict[str, str],
    refused: bool,
    project: Path,
    cluster: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The uid of kube-system identifies a cluster."""
    objects = Objects({"/api/v1/namespaces": [namespace("kube-system", uid="1"), namespace("immich", uid="9")]})
    monkeypatch.setattr(commands, "connect", lambda _: nullcontext(objects))
    state = [{"urn": "urn", "type": PATCH, "outputs": namespace(name, uid=uid)} for name, uid in uids.items()]
    engine(project, f"[ $1 = preview ] && echo '{ACCEPTED}'; exit 0", state=state)
    for command in ("up", "destroy", "refresh"):
        assert main([command, "--stack", "prod", "--yes"], project) == int(refused)
        told = capsys.readouterr().err.startswith(f"The state of prod is of another cluster than {cluster}, so nothing")
        assert told is refused
    assert (steps(project) == []) is refused


@pytest.mark.parametrize("given", ["y\n", ""])
def test_any_other_answer_changes_nothing(
    given: str, project: Path, cluster: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine(project, f"[ $1 = preview ] && echo '{ACCEPTED}'; exit 0")
    for command, asked in (("up", "preview"), ("destroy", "destroy --stack prod --preview-only")):
        answer(monkeypatch, given)
        assert main([command, "--stack", "prod"], project) == 1
        assert capsys.readouterr().err == "Nothing was changed.\n"
        assert steps(project)[-1].startswith(asked)


def test_nothing_is_changed_where_the_cluster_cannot_be_read(
    project: Path, cluster: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If a command cannot read the cluster, `up` could take over objects and `destroy` could lose objects."""
    monkeypatch.setenv("PATH", str(project))
    monkeypatch.setattr(commands, "connect", connect)
    engine(project, "exit 0")
    for command in ("up", "destroy"):
        assert main([command, "--stack", "prod", "--yes"], project) == 1
        told = "the cluster cannot be read, so nothing was changed: kubectl is not on PATH\n"
        assert capsys.readouterr().err == told
    assert set(calls(project)) == {"stack export --stack prod --non-interactive --color never"}


def test_a_removal_is_confirmed_by_the_name_of_the_stack(
    project: Path, cluster: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine(project, "exit 0")
    answer(monkeypatch, "yes\n")
    assert main(["destroy", "--stack", "prod"], project) == 1
    assert "Type prod to go on: " in capsys.readouterr().out
    answer(monkeypatch, "prod\n")
    assert main(["destroy", "--stack", "prod"], project) == 0


def test_a_pipeline_is_not_asked_and_the_cluster_is_still_named(
    project: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine(project, "exit 0")
    assert main(["destroy", "--stack", "prod", "--yes", "--", "--target", "urn"], project) == 0
    assert steps(project) == [
        "destroy --stack prod --preview-only --target urn --json --non-interactive --color never",
        f"destroy --stack prod --skip-preview --yes --target urn {LOGGED}",
    ]
    assert capsys.readouterr().out.startswith(f"Destroy prod: {cluster} (--yes)\n\ndestroy prod; ")


def test_the_question_names_the_cluster_of_the_stacks_own_context(
    project: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the fix, the question to the user named kubectl's current context."""
    engine(project, "exit 0")
    change(project, "config:\n", "config:\n  kubernetes:context: other\n")
    assert main(["destroy", "--stack", "prod", "--yes"], project) == 1
    assert capsys.readouterr().err.endswith("has no server for the context other\n")
    change(project, "kubernetes:context: other", "kubernetes:context: lab")
    assert main(["destroy", "--stack", "prod", "--yes"], project) == 0
    assert capsys.readouterr().out.startswith(f"Destroy prod: {cluster} (--yes)\n")


@pytest.mark.parametrize("inline", [False, True])
def test_the_question_names_the_cluster_of_the_stacks_own_kubeconfig(
    inline: bool, project: Path, cluster: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the fix, the question to the user named the cluster of $KUBECONFIG."""
    engine(project, "exit 0")
    path = Path(os.environ["KUBECONFIG"])
    monkeypatch.setenv("KUBECONFIG", str(project / "none"))
    value = json.dumps(path.read_text()) if inline else path
    change(project, "config:\n", f"config:\n  kubernetes:kubeconfig: {value}\n")
    assert main(["destroy", "--stack", "prod", "--yes"], project) == 0
    assert capsys.readouterr().out.startswith(f"Destroy prod: {cluster} (--yes)\n")


def test_nothing_is_applied_that_was_refused_or_without_a_cluster(
    project: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine(project, "exit 5")
    assert main(["up", "--stack", "prod", "--yes"], project) == 5
    assert main(["destroy", "--stack", "prod", "--yes"], project) == 5
    assert main(["render", "--stack", "prod", "--out", str(project / "out")], project) == 5
    assert not (project / "out").exists()
    config = Path(os.environ["KUBECONFIG"])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    config.write_text(re.sub(r"127.0.0.1:\d+", f"127.0.0.1:{port}", config.read_text()))
    for command in ("up", "destroy"):
        assert main([command, "--stack", "prod", "--yes"], project) == 1
        assert capsys.readouterr().err == (
            f"no cluster: context lab at https://127.0.0.1:{port} does not answer (Connection refused)\n"
        )
    assert [call.split()[0] for call in calls(project) if not call.startswith("stack")] == [
        "preview",
        "destroy",
        "preview",
    ]


@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_new_stack_adds_its_salt_and_leaves_the_rest_of_the_file_alone(
    ending: str, project: Path, cluster: str
) -> None:
    """When Pulumi creates a stack, it writes the stack file again without the comments."""
    engine(project, "exit 0", f'printf "config: rewritten\\n{SALT}\\n" > "$2/Pulumi.lab.yaml"; echo Created stack')
    text = "config:\n  # a comment\n  gpu-tenancy:pools: {}\n\n  gpu-tenancy:residents: {}"
    (project / "Pulumi.lab.yaml").write_text(text + ending)
    assert main(["refresh", "--stack", "lab"], project) == 0
    assert (project / "Pulumi.lab.yaml").read_text() == f"{text}\n{SALT}\n"
    assert main(["refresh", "--stack", "prod"], project) == 0
    assert (project / "Pulumi.prod.yaml").read_text() == (ROOT / "Pulumi.prod.yaml").read_text()


@pytest.mark.parametrize("command", ["up", "destroy", "refresh"])
def test_the_lock_and_the_torn_files_of_a_killed_run_are_removed_before_pulumi_reads_the_state(
    command: str, project: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pulumi cannot read a state with incomplete attributes."""
    torn, whole = (project / ".state/.pulumi/stacks/gpu-tenancy" / f"prod.json{end}.attrs" for end in ("", ".bak"))
    with subprocess.Popen(["true"]) as gone:
        pass
    locked_by(project, gone.pid)
    torn.parent.mkdir(parents=True)
    torn.touch()
    whole.write_text("{}")
    engine(project, f"[ $1 = preview ] && echo '{ACCEPTED}'; exit 0", f"[ ! -e {torn} ]")
    assert main([command, "--stack", "prod", "--yes"], project) == 0
    assert capsys.readouterr().out.startswith("prod: removed the lock of a run that ended before its time\n")
    assert calls(project)[0] == "cancel --yes --stack prod --non-interactive --color never"
    assert whole.exists()


@pytest.mark.parametrize("elsewhere", [{}, {"hostname": "another"}, {"username": "another"}])
def test_a_run_that_goes_on_is_named_and_nothing_is_done(
    elsewhere: dict[str, str], project: Path, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process of another user or machine cannot be seen."""
    locked_by(project, os.getpid(), **elsewhere)
    engine(project, "exit 0")
    for command in ("up", "destroy", "refresh"):
        assert main([command, "--stack", "prod", "--yes"], project) == 1
        told = capsys.readouterr().err
        assert told.startswith("prod is in use by ")
        assert f"PULUMI_BACKEND_URL=file://{project / '.state'} {project / '.toolchain/bin/pulumi'} cancel" in told
    assert calls(project) == []


def locked_by(project: Path, pid: int, **elsewhere: str) -> None:
    lock = project / ".state/.pulumi/locks/organization/gpu-tenancy/prod/1.json"
    lock.parent.mkdir(parents=True)
    user, host = pwd.getpwuid(os.getuid()).pw_name, socket.gethostname()
    lock.write_text(json.dumps({"pid": pid, "username": user, "hostname": host, "timestamp": "", **elsewhere}))


def test_what_pulumi_complains_of_is_shown(project: Path, cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    engine(project, "exit 0")
    program = project / ".toolchain/bin/pulumi"
    program.write_text(program.read_text().replace("stack export", "never").replace("exit 0", "echo no >&2; exit 255"))
    assert main(["up", "--stack", "prod"], project) == 1
    assert capsys.readouterr().err == "pulumi stack: no\n"
