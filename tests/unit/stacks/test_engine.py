"""Tests the flags and the environment of the Pulumi process."""

from pathlib import Path

import pytest

from stacks.engine import Engine, EngineError, environment, refuse_flags
from stacks.lock import state_files


def test_the_backup_that_a_removed_stack_has_left_is_no_state(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: gpu-tenancy\n")
    states = tmp_path / ".pulumi" / "stacks" / "gpu-tenancy"
    states.mkdir(parents=True)
    for name in ("lab.json.bak", "lab.json.bak.attrs", "lab2.json"):
        (states / name).touch()
    engine = Engine(tmp_path, "lab", {"PULUMI_BACKEND_URL": f"file://{tmp_path}"})
    assert state_files(engine) == []
    (states / "lab.json").touch()
    assert [file.name for file in state_files(engine)] == ["lab.json"]


def refused(*flags: str, gated: bool = True) -> list[str]:
    try:
        refuse_flags(flags, gated=gated)
    except EngineError as error:
        return [line.partition(":")[0] for line in str(error).splitlines()]
    return []


NARROWING = {
    ("--target=urn",): ["--target"],
    ("--target", "urn"): ["--target"],
    ("-t", "urn"): ["-t"],
    ("-dt", "urn"): ["-t"],
    ("-turn",): ["-t"],
    ("--target-replace", "urn"): ["--target-replace"],
    ("--exclude", "urn"): ["--exclude"],
    ("-x=urn",): ["-x"],
    ("--exclude-dependents",): ["--exclude-dependents"],
    ("--policy-pack-config", "off.json"): ["--policy-pack-config"],
    ("--policy-pack-config=off.json", "-t=x"): ["--policy-pack-config", "-t"],
}
ELSEWHERE = {("--stack", "lab"): ["--stack"], ("-slab",): ["-s"], ("-C", ".."): ["-C"], ("--cwd=..",): ["--cwd"]}
HARMLESS = [
    ("--diff",),
    ("-d",),
    ("--refresh=true",),
    ("-v=9",),
    ("-m", "my target"),
    ("--show-sames",),
    ("-p", "4"),
    (),
]


@pytest.mark.parametrize(("flags", "named"), [*NARROWING.items(), *ELSEWHERE.items()])
def test_what_the_policy_pack_would_not_judge_is_refused(flags: tuple[str, ...], named: list[str]) -> None:
    assert refused(*flags) == named


@pytest.mark.parametrize("flags", HARMLESS)
def test_other_flags_are_pulumis(flags: tuple[str, ...]) -> None:
    assert refused(*flags) == refused(*flags, gated=False) == []


def test_what_is_not_judged_may_be_done_in_part_but_not_to_another_stack() -> None:
    assert [flags for flags in NARROWING if refused(*flags, gated=False)] == []
    assert [flags for flags in ELSEWHERE if not refused(*flags, gated=False)] == []


@pytest.mark.parametrize("name", ["../etc", "a b", "", "-h", "x" * 101, "lab\n", "$(id)", "organization/lab"])
def test_a_stack_is_no_path_and_no_command(name: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"is no stack's name: write the NAME of a Pulumi\.NAME\.yaml"):
        Engine.of(name, tmp_path)


def test_the_state_is_the_projects_where_the_environment_names_no_other(tmp_path: Path) -> None:
    ours, theirs = environment(tmp_path, {}), environment(tmp_path, {"PULUMI_BACKEND_URL": "s3://b", "PATH": "/bin"})
    assert (ours["PULUMI_BACKEND_URL"], theirs["PULUMI_BACKEND_URL"]) == (f"file://{tmp_path}/.state", "s3://b")
    assert theirs["PATH"] == f"{tmp_path}/.toolchain/bin:{tmp_path}/.venv/bin:/bin"


def test_a_passphrase_in_a_file_is_not_hidden_by_an_empty_one(tmp_path: Path) -> None:
    assert environment(tmp_path, {})["PULUMI_CONFIG_PASSPHRASE"] == ""
    assert "PULUMI_CONFIG_PASSPHRASE" not in environment(tmp_path, {"PULUMI_CONFIG_PASSPHRASE_FILE": "x"})
