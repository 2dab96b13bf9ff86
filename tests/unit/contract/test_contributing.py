"""What CONTRIBUTING sends people to exists, and hooks, workflows and metadata say the same as the Makefile."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.paths import ROOT
from tests.unit.contract.test_docs import targets

WORKFLOWS = sorted((ROOT / ".github").rglob("*.yml"))
LEVELS = ("unit", "integration", "e2e")


def named_paths(text: str) -> list[str]:
    """What stands in backticks and is a path of this repository; <name> stands for any name."""
    spans = re.findall(r"`([^`\s]+)`", text)
    paths = [span for span in spans if "/" in span or re.fullmatch(r"[\w.]+\.(?:py|ya?ml|toml|lock|md)", span)]
    return sorted({re.sub(r"<[^>]+>", "*", path) for path in paths})


def steps(workflow: Path) -> list[dict[str, Any]]:
    document = yaml.safe_load(workflow.read_text())
    jobs = [document["runs"]] if "runs" in document else document["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("path", named_paths((ROOT / "CONTRIBUTING.md").read_text()))
def test_each_place_that_contributing_names_is_there(path: str) -> None:
    assert list(ROOT.glob(path))


def test_contributing_names_places_by_path() -> None:
    assert len(named_paths((ROOT / "CONTRIBUTING.md").read_text())) > 40


def test_each_list_of_contributing_names_the_code_its_tests_and_its_docs() -> None:
    lists = re.split(r"^## ", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE)
    for list_ in (found for found in lists if found.startswith("Add ")):
        title = list_.partition("\n")[0]
        assert re.search(r"`tests/", list_), title
        assert re.search(r"`docs/|make schema", list_), title


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: str(path.relative_to(ROOT)))
def test_foreign_actions_are_pinned_by_commit_with_their_version_beside(workflow: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", workflow.read_text())
    assert used or "run:" in workflow.read_text()
    for action, rest in used:
        if action.startswith("./"):
            assert (ROOT / action / "action.yml").is_file()
        else:
            assert re.fullmatch(r"[\w-]+/[\w./-]+@[0-9a-f]{40}", action)
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", rest)


def test_an_action_has_one_commit_everywhere() -> None:
    pins = {pin for path in WORKFLOWS for pin in re.findall(r"uses: ([\w-]+/[\w./-]+@\w+)", path.read_text())}
    assert len({pin.partition("@")[0] for pin in pins}) == len(pins)


def test_the_levels_of_tests_are_jobs_of_their_own() -> None:
    document = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    commands = {name: job["steps"][-1]["run"] for name, job in document["jobs"].items()}
    assert set(commands) == {"check", *LEVELS}
    made = {name: re.search(r"\bmake (\S+)(?: \w+=\S+)*$", command) for name, command in commands.items()}
    assert {name: match and match[1] for name, match in made.items()} == {name: name for name in commands}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: str(path.relative_to(ROOT)))
def test_workflows_run_make_targets_that_exist(workflow: Path) -> None:
    run = " ".join(step.get("run", "") for step in steps(workflow))
    assert set(re.findall(r"\bmake ([a-z0-9-]+)", run)) <= targets()


def test_a_preview_is_given_what_a_rollout_needs_to_reach_the_state() -> None:
    given = {}
    for name, job in (("preview", "preview"), ("deploy", "up")):
        document = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
        given[name] = set(re.findall(r"(?:secrets|vars)\.(\w+)", " ".join(document["jobs"][job]["env"].values())))
    assert given["preview"] == given["deploy"] - {"KUBECONFIG"}  # a preview asks no cluster
    assert {"PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "AWS_ACCESS_KEY_ID"} <= given["preview"]


def test_workflows_go_through_the_gate_and_a_pipe_does_not_hide_its_verdict() -> None:
    for name, command in (("preview", "make preview"), ("deploy", "make up YES=1")):
        path = ROOT / ".github" / "workflows" / f"{name}.yml"
        run = " ".join(step.get("run", "") for step in steps(path))
        assert command in run
        assert "pulumi " not in run
        assert yaml.safe_load(path.read_text())["defaults"]["run"]["shell"] == "bash"  # with pipefail


def test_the_commit_hook_runs_what_ci_runs_first() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [hook["entry"] for hook in repository["hooks"]] == ["make check"]


def test_renovate_speaks_of_files_and_modules_that_are_there() -> None:
    rules = json.loads((ROOT / ".github" / "renovate.json").read_text())["packageRules"]
    assert all((ROOT / name).is_file() for rule in rules for name in rule.get("matchFileNames", ()))
    modules = "".join(path.read_text() for path in (ROOT / "toolchain").rglob("go.mod"))
    enabled = [name for rule in rules if rule.get("enabled") for name in rule["matchPackageNames"]]
    assert enabled
    assert [name for name in enabled if not re.search(rf"^(?:require )?\s*{re.escape(name)} v", modules, re.M)] == []


def test_the_licence_is_the_one_that_the_project_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()
