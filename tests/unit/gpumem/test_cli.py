"""Tests that the command reads its arguments and prints its output."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpumem import arguments, cli, completion, report
from tests.support.kubectl import FakeApi, api, node, pod
from tests.support.paths import ROOT


def candidates(*words: str) -> list[str]:
    *found, directive = completion.candidates(words, arguments.parser())
    assert directive == ":4"
    return found


def test_verbs_flags_and_their_values_are_completed() -> None:
    assert candidates("w") == ["who", "why"]
    assert "--node" in candidates("who", "--n")
    assert candidates("who", "-o", "") == ["text", "json", "yaml"]
    assert candidates("who", "--node", "") == []
    assert candidates("nonsense", "") == []


@pytest.mark.parametrize("verb", ["who", "free", "why", "advise", "bill", "fit", "replay", "init", "preflight"])
def test_help_has_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([verb, "--help"], {})
    assert ended.value.code == 0
    # the kubectl plugin lacks this package
    command = 'make gpumem ARGS="replay' if verb == "replay" else f"kubectl gpumem {verb}"
    assert command in capsys.readouterr().out.partition("examples:")[2]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["who", "-o", "xml"],
        ["free", "--interval", "0"],
        ["fit", "0"],
        ["advise", "--from", "x", "--days", "1.5"],
    ],
)
def test_a_wrong_command_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments, {})
    assert ended.value.code == report.USAGE
    assert "usage" in capsys.readouterr().err


def test_the_flags_of_the_connection_are_kubectls() -> None:
    given = arguments.parser().parse_args(["who", "--context", "lab", "--as-group", "a", "--as-group=b"])
    assert cli.kubectl_flags(given) == ["--context=lab", "--as-group=a", "--as-group=b"]


class Reached(nullcontext[Any], FakeApi):
    """Replaces kubectl for one namespace."""

    def namespace(self) -> str:
        return "immich"


def reached(*pods: dict[str, Any]) -> Reached:
    found = api(pods, [node("k8s-node1"), node("k8s-node2", "whole"), node("k8s-node3", mib=0)])
    answer = Reached()
    answer.__dict__.update(vars(found))
    answer.enter_result = answer
    return answer


RUNNING = pod("ml", 3000, on="k8s-node1", status={"phase": "Running"})
ADRIFT = pod("lost", 1000, on="k8s-node1", devices=(7,))


def typed(words: str, *pods: dict[str, Any], environ: Mapping[str, str] | None = None) -> int:
    return cli.main(words.split(), environ or {}, lambda flags: reached(*pods))


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("who", "immich     ml   immich-ml      3000  running"),
        ("who --node k8s-node9", "no node of a pool is among them"),
        ("who --node k8s-node2", "k8s-node2 (batch): 0 of 1 GPUs held"),
        ("who --node k8s-node3", "takes no new pod: "),
        ("free --pool t4", "t4: 9800 of 14000 MiB promised, 4200 to promise"),
        ("free", "batch"),
        ("why ml", "pod immich/ml: the pod runs [runs]"),
    ],
)
def test_a_verb_prints_what_it_found(words: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(words, RUNNING) == 0
    assert shown in capsys.readouterr().out


def test_a_pod_whose_device_is_gone_is_listed_and_marked(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("who", RUNNING, ADRIFT) == 0
    said = capsys.readouterr().out
    assert "lost" in said.partition("their device is gone, or not known:")[2]


def test_json_and_yaml_are_the_same_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("free -o json", RUNNING) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["version"], found["pools"][0]["promised_mib"]) == ("free", 1, 9800)
    assert typed("free -o yaml", RUNNING) == 0
    assert yaml.safe_load(capsys.readouterr().out) == found


def test_what_waits_is_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("why -o json big", pod("big", 99000)) == report.WAITS
    assert json.loads(capsys.readouterr().out)["answers"][0]["reason"] == "unusable"


def test_what_cannot_be_read_is_one_sentence_and_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("who --system-namespace elsewhere") == report.FAILED
    caught = capsys.readouterr()
    assert caught.out == ""
    assert caught.err == (
        "gpumem: there is no ConfigMap gpu-tenancy-ledger in elsewhere: name the stack's namespace "
        "(--system-namespace), or run pulumi up\n"
    )


@pytest.mark.parametrize("verb", ["who", "free"])
def test_a_pool_that_is_not_there_is_named_with_those_that_are(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(f"{verb} --pool t5", RUNNING) == report.FAILED
    assert capsys.readouterr().err == "gpumem: --pool 't5' is no pool of the ledger; these are: t4, batch\n"


def test_of_a_stack_and_a_cluster_both_are_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert typed("fit 4000 --stack prod --pool t4 --live", RUNNING) == report.WAITS
    said = capsys.readouterr().out
    assert "to promise it, the smallest change there is (1 workload touched, 3512 MiB less promised):" in said
    assert "on the devices, as they are held now: nothing has to change (k8s-node1, gpu 0)" in said
    assert "into Pulumi.prod.yaml, under config:" in said


def test_a_stack_that_is_not_there_is_told_before_the_cluster_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fit", "1", "--stack", "lab", "--live"], {}, pytest.fail) == report.FAILED
    assert "Pulumi.lab.yaml is not there" in capsys.readouterr().err


def test_watching_goes_on_until_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(cli.time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        typed("free -o json --watch --interval 7", RUNNING)
    assert slept == [7, 7]
    assert capsys.readouterr().out.count('"kind": "free"') == 2


def test_a_history_is_judged_by_the_clusters_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "use.csv").write_text("time,seat,mib\n60,llama-swap,5001\n")
    arguments = ["advise", "--from", str(tmp_path / "use.csv")]
    assert cli.main(arguments, {}, lambda _: reached()) == report.WAITS
    text = capsys.readouterr().out
    assert "they fit together, by the ledger's sums; make preview judges the rest:" in text
    assert "    llama-swap: {gpumem_mib: 5100}\n" in text
