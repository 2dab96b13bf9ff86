"""What a person types after make reaches stacks/typed.py as it was typed, and nothing runs before."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from stacks import typed
from tests.support.paths import ROOT


def run(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """As somebody whose shell has none of the variables."""
    kept = {name: value for name, value in os.environ.items() if name not in typed.TYPED and name[:4] != "MAKE"}
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env=kept | env, capture_output=True, text=True, timeout=60, check=False
    )


def make(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """What it would run."""
    return run("-n", *arguments, **env)


def odd(made: Path) -> list[str]:
    return [
        f"prod;touch {made}",
        f"'$(shell touch {made})`touch {made}`",
        f"'\ntouch {made}\n'",
        "",
        "-h",
        "#$(error x)",
    ]


def test_an_odd_stack_is_one_sentence_and_is_never_run(tmp_path: Path) -> None:
    made = tmp_path / "made"
    inherited = f"$(shell touch {made})"
    for name in (inherited, *odd(made)):
        done = make("preview", STACK=name) if name == inherited else make("preview", f"STACK={name}")
        assert (done.returncode, done.stdout) == (2, ""), name
        first, last = done.stderr.splitlines()
        assert first.startswith(f"STACK={name!r}: "), name
        assert re.fullmatch(r"Makefile:\d+: \*\*\* nothing was run\.  Stop\.", last)
    assert not made.exists()


def test_words_reach_the_command_as_they_were_typed() -> None:
    args = "--replace 'urn:a$b::c' -m \"two  words\""
    assert f"-- --policy-pack policy --suppress-outputs {args}\n" in make("preview", f"ARGS={args}").stdout


def test_what_judges_cannot_be_replaced() -> None:
    replaced = ["PYTHON=true", "PREVIEW=true", "GATED=", "SHELL=/bin/true", ".SHELLFLAGS=-nc", "PULUMI=true"]
    last = make("preview", *replaced).stdout.splitlines()[-1]
    assert last == ".venv/bin/python -m stacks preview --stack 'prod'  -- --policy-pack policy --suppress-outputs "


def test_variables_of_other_programs_reach_them_as_they_were_typed() -> None:
    """`make up KUBECONFIG=…`, and a passphrase with a dollar."""
    typed_ = ["KUBECONFIG=/my/config", "PULUMI_CONFIG_PASSPHRASE=a$b$(shell id)", "ARGS=--diff"]
    shown = run("--eval", "show: ; @env", "show", *typed_).stdout.splitlines()
    assert {"KUBECONFIG=/my/config", "PULUMI_CONFIG_PASSPHRASE=a$b$(shell id)"} <= set(shown)
    assert not [line for line in shown if line.startswith("ARGS=")]


@pytest.mark.parametrize(("flag", "why"), [("-i", "goes on after a refusal"), ("-t", "judges nothing")])
def test_make_itself_may_not_pass_over_a_refusal(flag: str, why: str) -> None:
    done = make(flag, "up")
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert make("-k", "chart", "STACK=tiny").returncode == 0


def test_a_stack_that_is_not_there_is_a_sentence() -> None:
    done = subprocess.run(
        ["toolchain/ensure-stack.sh", "nope"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (
        1,
        "Pulumi.nope.yaml is not there; begin with make new-stack STACK=nope\n",
    )


# Of `pulumi preview` and `pulumi up`, those that leave what is judged what it is.
HARMLESS = re.findall(
    r"\S+",
    """
attach-debugger color continue-on-error debug diff disable-integrity-checking emoji expect-no-changes
fully-qualify-stack-names help ignore-protect import-file json logflow logtostderr memprofilerate message neo
non-interactive otel-traces parallel policy-pack profiling refresh replace run-program save-plan secrets-provider
show-config show-full-output show-policy-remediations show-reads show-replacement-steps show-sames show-secrets
skip-config-validation skip-plugin-pre-install strict suppress-outputs suppress-permalink suppress-progress tracing
urns verbose yes
""",
)


@pytest.mark.parametrize("command", ["preview", "up"])
def test_each_flag_of_the_pinned_pulumi_was_decided_on(command: str) -> None:
    pulumi = ROOT / ".toolchain" / "bin" / "pulumi"
    said = subprocess.run([pulumi, command, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    flags = re.findall(r"^\s+(?:-\w, )?--([a-z-]+)", said, re.MULTILINE)
    assert len(flags) > 40
    undecided = [flag for flag in flags if flag not in HARMLESS and not list(typed.flags([f"--{flag}"], command))]
    assert undecided == []
