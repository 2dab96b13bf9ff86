"""Tests the recovery of locked stacks. In most tests, a script replaces the Pulumi CLI."""

import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from stacks.recovery import rollout
from stacks.recovery.cli import CliError, Stack
from stacks.recovery.lock import Lock
from stacks.recovery.recover import RecoveryError, recover
from tests.support.pulumi_state import HERE, deployment, quota
from tests.support.scripts import script
from toolchain.cluster.paths import TOOLCHAIN


@pytest.fixture
def gone() -> int:
    with subprocess.Popen(["true"]) as process:
        pass
    return process.pid


def test_a_lock_of_this_user_on_this_host_is_stale_when_its_process_is_gone(gone: int) -> None:
    assert Lock(gone, **HERE).is_stale
    assert not Lock(os.getpid(), **HERE).is_stale


@pytest.mark.parametrize("elsewhere", [{"hostname": "another"}, {"username": "another"}])
def test_a_lock_of_another_users_process_is_not_stale(gone: int, elsewhere: dict[str, str]) -> None:
    assert not Lock(gone, **{**HERE, **elsewhere}).is_stale


@pytest.fixture
def prod(tmp_path: Path) -> Stack:
    (tmp_path / "Pulumi.yaml").write_text("name: gpu-tenancy\n")
    (tmp_path / "Pulumi.prod.yaml").touch()
    stack = Stack("prod", tmp_path, {**os.environ, "PULUMI_BACKEND_URL": f"file://{tmp_path}"}, tmp_path / "pulumi")
    answer(stack, deployment(quota(id="tts/seats")))
    return stack


def answer(stack: Stack, export: Mapping[str, object]) -> None:
    noted = f'echo "$1 $2" >> {stack.folder}/calls'
    script(stack.program, f"{noted}; [ $1 = stack ] && echo '{json.dumps(export)}' || true")


# The state of the stack, and the record of its last rollout.
READS = ["stack export", "stack select", "stack export"]


def never() -> None:
    raise AssertionError("nothing was interrupted")


def locked_by(project: Path, pid: int) -> None:
    folder = project / ".pulumi" / "locks" / "organization" / "gpu-tenancy" / "prod"
    folder.mkdir(parents=True)
    (folder / "5d3c.json").write_text(json.dumps({"pid": pid, **HERE}))


def calls(stack: Stack) -> list[str]:
    noted = stack.folder / "calls"
    return noted.read_text().splitlines() if noted.exists() else []


def test_a_clean_stack_is_read_and_nothing_else(prod: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    recover(prod, never)
    assert (calls(prod), capsys.readouterr()) == (READS, ("", ""))


def test_a_stale_lock_is_removed(prod: Stack, gone: int, capsys: pytest.CaptureFixture[str]) -> None:
    locked_by(prod.folder, gone)
    recover(prod, never)
    assert (calls(prod), capsys.readouterr().out) == ([*READS, "cancel --yes"], "prod: unlocked\n")


@pytest.mark.parametrize(("holder", "kept"), [("gone", {"prod.json.bak.attrs"}), ("alive", None)])
def test_attributes_that_were_being_written_at_the_kill_are_removed(
    prod: Stack, gone: int, holder: str, kept: set[str] | None
) -> None:
    folder = prod.folder / ".pulumi" / "stacks" / "gpu-tenancy"
    folder.mkdir(parents=True)
    whole = json.dumps({"user.content_type": "application/json"})
    for name, content in (("prod.json.attrs", ""), ("prod.json.bak.attrs", whole), ("prod2.json.attrs", "")):
        (folder / name).write_text(content)
    before = {file.name for file in folder.iterdir()}
    locked_by(prod.folder, gone if holder == "gone" else os.getpid())
    with suppress(RecoveryError):
        recover(prod, never)
    after = {file.name for file in folder.iterdir()}
    assert after == ({"prod2.json.attrs", *kept} if kept else before)


def test_a_run_that_goes_on_is_named_and_nothing_is_done(prod: Stack) -> None:
    locked_by(prod.folder, os.getpid())
    with pytest.raises(RecoveryError) as refused:
        recover(prod, never)
    assert calls(prod) == []
    assert str(refused.value) == (
        f"prod is in use by {HERE['username']}@{HERE['hostname']} (process {os.getpid()}), since 2026-11-21T01:08:18Z. "
        "Wait; or, if you know that it is gone: "
        f"PULUMI_BACKEND_URL=file://{prod.folder} .toolchain/bin/pulumi cancel --stack prod"
    )


def test_no_rollout_is_recovered_that_goes_on_on_another_machine(prod: Stack) -> None:
    remote = replace(prod, environment={**prod.environment, "PULUMI_BACKEND_URL": "s3://states?region=a&b=c"})
    export = json.dumps(deployment(pending=[("creating", quota())]))
    locked = r"error: the stack is currently locked by 1 lock(s).\n  s3://states/a: created by ops@ci (pid 7) at noon"
    script(prod.program, f"[ $2 = rename ] && {{ printf '{locked}' >&2; exit 1; }}; echo '{export}'")
    with pytest.raises(RecoveryError, match=r"^prod is in use by ops@ci \(pid 7\) at noon\. Wait; or, .*='s3://states"):
        recover(remote, never)


def test_a_state_that_another_run_saves_during_the_recovery_stays(prod: Stack) -> None:
    answer(prod, deployment(pending=[("creating", quota())]))
    with pytest.raises(RecoveryError, match=r"^another run has changed the state of prod"):
        recover(prod, lambda: answer(prod, deployment()))
    assert calls(prod)[-1] == "stack export"
    assert "cancel --yes" not in calls(prod)


def test_a_run_that_begins_during_the_recovery_keeps_its_lock(prod: Stack) -> None:
    answer(prod, deployment(pending=[("creating", quota())]))
    with pytest.raises(RecoveryError, match=r"^prod is in use by "):
        recover(prod, lambda: locked_by(prod.folder, os.getpid()))
    assert "cancel --yes" not in calls(prod)


@pytest.fixture
def lab(tmp_path: Path) -> Stack:
    """A stack in a folder, with the pinned Pulumi."""
    (tmp_path / "Pulumi.yaml").write_text("name: gpu-tenancy\nruntime: yaml\n")
    home = {"PULUMI_HOME": str(tmp_path / "home"), "PULUMI_CONFIG_PASSPHRASE": "", "PULUMI_SKIP_UPDATE_CHECK": "true"}
    environment = {**os.environ, **home, "PULUMI_BACKEND_URL": f"file://{tmp_path}"}
    stack = Stack("lab", tmp_path, environment, TOOLCHAIN / "bin" / "pulumi")
    stack.init()
    return stack


def test_a_record_is_of_a_killed_rollout_until_pulumi_has_saved_the_state(lab: Stack) -> None:
    before = lab.export()
    assert rollout.read(lab, before) is None
    rollout.write(lab, {"resourcePlans": {"urn": {"steps": ["create"]}}}, before)
    assert rollout.read(lab, before) == {"resourcePlans": {"urn": {"steps": ["create"]}}}
    assert rollout.read(lab, {"deployment": {"manifest": {"time": "2026-11-26T19:05:00Z"}}}) is None
    rollout.remove(lab)
    assert rollout.read(lab, before) is None


def test_pulumi_names_the_run_that_has_locked_a_stack(lab: Stack) -> None:
    assert lab.lock_holder() is None
    folder = lab.folder / ".pulumi" / "locks" / "organization" / "gpu-tenancy" / "lab"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "5d3c.json").write_text(json.dumps({"pid": 7, **HERE}))
    assert lab.lock_holder() == f"{HERE['username']}@{HERE['hostname']} (pid 7) at {HERE['timestamp']}"
    with pytest.raises(CliError, match="no stack named 'gone'"):
        replace(lab, name="gone").lock_holder()


def test_what_pulumi_complains_of_is_shown(prod: Stack) -> None:
    script(prod.program, "echo error: incorrect passphrase >&2; exit 255")
    with pytest.raises(CliError, match=r"^pulumi stack export: error: incorrect passphrase$"):
        recover(prod, never)
