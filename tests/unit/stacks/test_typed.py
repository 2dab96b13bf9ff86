"""What a person types after make is right, or one sentence says what to write instead."""

import re

import pytest

from stacks import typed
from stacks.__main__ import main
from tests.support.paths import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
NAME = "write the NAME of a Pulumi.NAME.yaml"
DEFAULTS = {"STACK": "prod", "SEEDS": "1000", "FIRST": "1", "JOBS": "2"}


def refused(goal: str, *assigned: str, environ: dict[str, str] | None = None, **given: str) -> list[str]:
    return list(typed.refusals([goal], DEFAULTS | given, assigned, environ or {}))


@pytest.mark.parametrize("name", ["prod", "lab-2", "a", "0", "x" * 100, "v1.2", "a_b"])
def test_a_name_that_pulumi_takes_is_right(name: str) -> None:
    assert refused("preview", STACK=name) == []


@pytest.mark.parametrize(
    "name",
    [
        "prod;echo INJECTED",
        "a b",
        "",
        "-h",
        "--foo",
        "../etc",
        "..",
        "$(shell touch x)",
        "$HOME",
        "`id`",
        "it's",
        'a"b',
        "a\nb",
        "prod\n",
        "*",
        "prod#",
        "ä",
        "x" * 101,
    ],
)
def test_a_name_that_is_none_is_refused_by_every_goal_that_reads_it(name: str) -> None:
    for goal in typed.STACK_GOALS:
        (line,) = refused(goal, STACK=name)
        assert line.startswith(f"STACK={name!r}: {NAME}")
    assert refused("lint", STACK=name) == []


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("organization/gpu-tenancy/prod", "write the stack's name alone, prod"),
        ("acme/lab", "write the stack's name alone, lab; PULUMI_DEFAULT_ORGANIZATION=acme says whose it is"),
    ],
)
def test_an_organization_has_a_variable_of_its_own(name: str, instead: str) -> None:
    assert refused("up", STACK=name) == [f"STACK={name!r}: {instead}"]


@pytest.mark.parametrize(
    "args", ["--diff", "--replace 'urn:a$b::c'", '-k "a or b"', "-m 'a;b' tests/*.py", "a\\;b", ""]
)
def test_words_are_words(args: str) -> None:
    assert refused("unit", ARGS=args) == refused("preview", ARGS=args) == []


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ("--diff; echo x", "; echo x"),
        ("--diff | tee x", "| tee x"),
        ("$(shell id)", "$(shell id)"),
        ('-m "`id`"', '"`id`"'),
        ("--diff > x", "> x"),
        ("--diff &", "&"),
        ("# more", "# more"),
        ("-k 'a", "'a"),
        ("a\\", "\\"),
        ("--diff\necho x", "\necho x"),
    ],
)
def test_what_the_shell_would_take_for_more_than_words_is_refused(args: str, what: str) -> None:
    for goal in ("preview", "destroy", "unit", "bench"):
        assert refused(goal, ARGS=args) == [
            f"ARGS={args!r}: from {what!r} on the shell reads more than words; put it in single quotes or leave it out"
        ]


@pytest.mark.parametrize("name", ["FULL", "YES", "COVER"])
def test_a_switch_is_1_or_not_there(name: str) -> None:
    goal = {"FULL": "up", "YES": "refresh", "COVER": "unit"}[name]
    for value in ("0", "no", "true", " ", "1;id"):
        assert refused(goal, **{name: value}) == [f"{name}={value!r}: write 1, or leave it out"]
    assert refused(goal, **{name: "1"}) == refused(goal, **{name: ""}) == []


@pytest.mark.parametrize("name", ["SEEDS", "FIRST", "JOBS", "SEED"])
def test_a_number_is_whole_and_within_its_bounds(name: str) -> None:
    for value in ("ten", "-1", "1e3", "99999999999", "1 2", "\N{ARABIC-INDIC DIGIT THREE}", "1\n"):
        (line,) = refused("simulate", **{name: value})
        assert re.fullmatch(rf"{name}=.*: write a whole number from \d+ to \d+", line)
    assert refused("simulate", **{name: "17"}) == []


def test_days_are_whole_and_a_path_is_one_line() -> None:
    assert refused("memory-report", DAYS="0", FROM="a\nb") == [
        "FROM='a\\nb': write it on one line",
        "DAYS='0': write a whole number from 1 to 9999",
    ]
    assert refused("memory-report", DAYS="", FROM="it's $here; quoted") == []


def test_everything_that_is_wrong_is_said_at_once() -> None:
    assert len(refused("up", "STAK", STACK="a b", FULL="0", YES="y", ARGS="--target x -c y")) == 6


@pytest.mark.parametrize(
    ("typo", "meant"), [("STAK", "STACK"), ("Stack", "STACK"), ("stack", "STACK"), ("ARG", "ARGS")]
)
def test_a_variable_that_nothing_reads_is_not_passed_over(typo: str, meant: str) -> None:
    assert refused("up", typo) == [f"{typo}: there is no such variable; write {meant}="]


def test_variables_of_other_programs_are_theirs() -> None:
    assert refused("up", "KUBECONFIG", "NO_COLOR", "PULUMI_HOME", "AWS_REGION", "STACK", "PYTEST_ADDOPTS") == []


UNGATED = [
    "--target=urn",
    "-t urn",
    "-dt urn",
    "-rturn",
    "--target-replace urn",
    "--exclude urn",
    "-xurn",
    "--exclude-dependents",
    "--policy-pack-config off.json",
    "--skip-preview",
    "-f",
    "--plan=x",
    "-- --diff",
]
ELSEWHERE = ["--stack lab", "-s lab", "-slab", "-C ..", "--cwd=..", "-c a=b", "--config-file other.yaml", "--remote"]


@pytest.mark.parametrize("args", [*UNGATED, *ELSEWHERE])
def test_a_flag_that_has_less_judged_than_is_applied_is_refused(args: str) -> None:
    for goal in typed.GATED_GOALS:
        assert any(line.startswith(f"ARGS={args!r}: --") for line in refused(goal, ARGS=args))


@pytest.mark.parametrize("goal", ["destroy", "refresh"])
def test_what_is_not_judged_may_be_done_in_part_but_not_elsewhere(goal: str) -> None:
    assert [args for args in UNGATED[:-1] if refused(goal, ARGS=args)] == []
    assert [args for args in ELSEWHERE if not refused(goal, ARGS=args)] == []


@pytest.mark.parametrize(
    "args", ["--diff", "-d", "--refresh=true", "-v=9", "-vt", "-m stack", "--message=--target", "--show-sames", "-p 4"]
)
def test_other_flags_are_pulumis(args: str) -> None:
    assert refused("preview", ARGS=args) == refused("up", ARGS=args) == []


def test_the_engine_takes_flags_from_the_environment_and_these_are_refused_as_well() -> None:
    environ = {"PULUMI_OPTION_TARGET": "urn", "PULUMI_OPTION_CONFIG_FILE": "x", "PULUMI_OPTION_REFRESH": "true"}
    assert refused("preview", environ=environ | {"PULUMI_OPTION_STACK": "x", "PULUMI_TARGET": "x"}) == [
        "PULUMI_OPTION_CONFIG_FILE in the environment: the stack file is Pulumi.NAME.yaml; another one is STACK=name; "
        "unset PULUMI_OPTION_CONFIG_FILE",
        "PULUMI_OPTION_TARGET in the environment: the policy pack judges a stack as a whole; leave it out; "
        "unset PULUMI_OPTION_TARGET",
    ]
    assert refused("chart", environ=environ) == []


def test_a_preview_without_make_is_held_to_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_OPTION_EXCLUDE", "**")
    assert main(["preview", "--stack", "prod", "--", "--policy-pack", "policy", "-c", "a=b"]) == 1
    assert capsys.readouterr().err == (
        "--config: it rewrites the stack file; write the key there\n"
        "PULUMI_OPTION_EXCLUDE in the environment: the policy pack judges a stack as a whole; leave it out; "
        "unset PULUMI_OPTION_EXCLUDE\n"
    )


def recipes() -> dict[str, str]:
    """The text of each goal of the Makefile, with what its variables bring in."""
    preview = re.search(r"^override PREVIEW = (.*)$", MAKEFILE, re.MULTILINE)
    found = re.findall(r"^([a-z][a-z0-9-]*):.*\n((?:\t.*\n?)*)", MAKEFILE, re.MULTILINE)
    return {goal: text.replace("$(PREVIEW)", preview[1] if preview else "") for goal, text in found}


def test_every_goal_that_reads_a_variable_checks_it() -> None:
    variables = re.search(r"^override TYPED := (.*)$", MAKEFILE, re.MULTILINE)
    assert variables
    assert variables[1].split() == list(typed.TYPED)
    for name, (readers, _) in typed.TYPED.items():
        read = {goal for goal, text in recipes().items() if re.search(rf"\$\((?:if \$\()?{name}\b|\${{{name}", text)}
        assert read <= set(readers), name
        assert set(readers) <= set(recipes()), name


def test_no_recipe_has_a_variable_that_the_shell_would_split() -> None:
    """ARGS are words; each other is quoted, or a number or a switch."""
    for goal, text in recipes().items():
        for name in ("STACK", "TRACE", "FROM"):
            for before in re.findall(rf"(.{{14}})\$\({name}\)", text):
                assert before.endswith(("'", "quoted,", "$(if ", "Apply ", "Destroy ")), (goal, before)
