"""Tests the command line's arguments and output."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from agents.kube.errors import ApiError
from gpumem import arguments, cli, report
from tests.support.kubectl import FakeApi, api, node, pod
from tests.support.paths import ROOT


def test_the_flags_of_the_connection_are_kubectls() -> None:
    given = arguments.parser().parse_args(["who", "--context", "lab", "--as-group", "a", "--as-group=b"])
    assert cli.kubectl_flags(given) == ["--context=lab", "--as-group=a", "--as-group=b"]


class Reached(nullcontext[Any], FakeApi):
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
        ("who --node k8s-node2", "k8s-node2 (batch): 0 of 1 GPUs held"),
        ("who --node k8s-node3", "takes no new pod: "),
        ("who --pool t4", "t4: 9800 of 14000 MiB promised; a new seat may have 4024"),
        ("who", "batch: 1 of 1 GPUs promised to queues, 1 are there, 1 of them free"),
        ("why ml", "pod immich/ml: the pod runs [runs]"),
        ("fit 4000 --pool t4", "t4: 4000 MiB fit now"),
    ],
)
def test_a_verb_prints_what_it_found(words: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(words, RUNNING) == 0
    assert shown in capsys.readouterr().out


def test_the_pods_of_a_node_without_another_are_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("fit --without k8s-node2 -o json", RUNNING) == report.WAITS
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["node"], found["pool"], found["moves"]) == ("without", "k8s-node2", "batch", [])


def test_a_pod_whose_device_is_gone_is_listed_and_marked(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("who", RUNNING, ADRIFT) == 0
    said = capsys.readouterr().out
    assert "lost" in said.partition("their device is gone, or not known:")[2]


def test_json_and_yaml_are_the_same_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("who -o json", RUNNING) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["version"], found["pools"][0]["promised_mib"]) == ("who", 2, 9800)
    assert typed("who -o yaml", RUNNING) == 0
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
        "(--system-namespace), or run make up\n"
    )


def test_a_cluster_that_is_not_there_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """Before the fix, the plugin printed the path of its request and status 500, in two lines."""

    class Unreached(FakeApi):
        def get(self, path: str) -> NoReturn:
            refused = "dial tcp 127.0.0.1:8080: connect: connection refused\n"
            raise ApiError(f"GET {path}", 500, "Internal Server Error", refused)

    assert cli.main(["who"], {}, lambda _: nullcontext(Unreached())) == report.FAILED
    assert capsys.readouterr().err == (
        "gpumem: kubectl reaches no cluster (dial tcp 127.0.0.1:8080: connect: connection refused); name one with "
        "--context or KUBECONFIG\n"
    )


def test_a_pool_that_is_not_there_is_named_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("who --pool t5", RUNNING) == report.FAILED
    assert capsys.readouterr().err == "gpumem: --pool 't5' is no pool of the ledger; these are: t4, batch\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("who --node k8s-node9", "--node 'k8s-node9' is no node of a pool; these are: k8s-node1, k8s-node2, k8s-node3"),
        ("who -n nobody", "there is no namespace nobody"),
        ("who --sort-by waste -o json", "--sort-by sorts the text; it has no meaning with -o json"),
    ],
)
def test_a_name_that_is_not_there_is_an_error(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(words, RUNNING) == report.FAILED
    assert capsys.readouterr().err == f"gpumem: {message}\n"


def test_a_namespace_that_the_user_may_not_read_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    found = reached(RUNNING)
    found.refused.add("/api/v1/namespaces/immich")
    assert cli.main(["who", "-n", "immich"], {}, lambda _: found) == 0
    assert "immich: its pods hold 3000 of its budget of 4800 MiB" in capsys.readouterr().out


def test_a_user_without_the_right_learns_the_role_to_ask_for(capsys: pytest.CaptureFixture[str]) -> None:
    found = reached(RUNNING)
    found.refused.add("/api/v1/nodes")
    assert cli.main(["who"], {}, lambda _: found) == report.FAILED
    roles = "`readers` in the stack file gives the ClusterRoles gpumem-viewer and, for all tenants, gpumem-operator"
    assert capsys.readouterr().err == f"gpumem: you may not GET /api/v1/nodes; {roles}\n"


def test_the_value_of_a_flag_is_no_verb() -> None:
    """Before the fix, `-n who who` ran `who -n who` by luck, and `-n status who` ran status."""
    top = arguments.parser()
    assert arguments.verb_first(top, ["-n", "status", "who", "--watch"]) == ["who", "-n", "status", "--watch"]
    assert arguments.verb_first(top, ["--watch", "status"]) == ["status", "--watch"]
    assert arguments.verb_first(top, ["--context=fit", "who"]) == ["who", "--context=fit"]


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([], {}, pytest.fail) == 0
    assert "explain why a pod" in capsys.readouterr().out


def test_a_wrong_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["fit", "4GB"], {}, pytest.fail)
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "gpumem: argument MIB: '4GB': must be whole MiB, such as 4000, or end in Mi or Gi, such as 4Gi; "
        "see kubectl gpumem fit --help\n"
    )


@pytest.mark.parametrize(
    ("amount", "mib"), [("4000", 4000), ("4Gi", 4096), ("1.5Gi", 1536), ("500Mi", 500), ("2048Ki", 2)]
)
def test_an_amount_may_have_a_binary_suffix(amount: str, mib: int) -> None:
    assert arguments.parser().parse_args(["fit", amount]).mib == mib


@pytest.mark.parametrize("amount", ["0", "0Gi", "1.5", "4G", "1Ki", "xGi", "-4Gi", "99999999Gi"])
def test_an_amount_is_whole_mib(amount: str) -> None:
    with pytest.raises(SystemExit):
        arguments.parser().parse_args(["fit", amount])


SMALL = pod("small", 1800, on="k8s-node1", status={"phase": "Running"})


def test_one_list_of_pods_can_be_sorted(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("who --sort-by declared", SMALL, RUNNING) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["NODE", "GPU", "NAMESPACE", "POD", "SEAT", "DECLARED", "STATE"]
    assert [row.split()[3] for row in rows if row.startswith("k8s")] == ["ml", "small"]
    assert typed("who --sort-by declared --no-headers", SMALL, RUNNING) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[3] == "ml"


def test_pods_are_selected_by_labels(capsys: pytest.CaptureFixture[str]) -> None:
    labelled = pod("tagged", 1800, on="k8s-node1", status={"phase": "Running"})
    labelled["metadata"]["labels"] = {"app": "ml"}
    assert typed("who -l app=ml --sort-by name --no-headers", RUNNING, labelled) == 0
    assert [row.split()[3] for row in capsys.readouterr().out.splitlines() if row.startswith("k8s")] == ["tagged"]
    assert typed("who -l app=ml", RUNNING, labelled) == 0
    assert "4800 of 14000 MiB held" in capsys.readouterr().out


def test_of_a_stack_and_a_cluster_both_are_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert typed("fit 4000 --stack prod --pool t4 --live", RUNNING) == report.WAITS
    said = capsys.readouterr().out
    assert "to promise it, the smallest change there is (2 workloads touched, 3600 MiB less promised):" in said
    assert "on the devices, as they are held now: nothing has to change (k8s-node1, gpu 0)" in said
    assert "into Pulumi.prod.yaml, under config:" in said


def test_a_stack_that_is_not_there_is_told_before_the_cluster_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fit", "1", "--stack", "lab", "--live"], {}, pytest.fail) == report.FAILED
    assert "Pulumi.lab.yaml is not there" in capsys.readouterr().err


def test_watching_goes_on_after_a_request_that_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found, slept = reached(RUNNING), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt
        found.refused = {"/api/v1/nodes"} if len(slept) == 1 else set()

    monkeypatch.setattr(cli.time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        cli.main(["who", "-o", "json", "--watch"], {}, lambda _: found)
    caught = capsys.readouterr()
    assert caught.out.count('"kind": "who"') == 2
    assert caught.err == "gpumem: you may not GET /api/v1/nodes; the next try is in 2 s\n"


def test_a_history_is_judged_by_the_clusters_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "use.csv").write_text("time,seat,mib\n60,llama-swap,5001\n")
    arguments = ["advise", "--from", str(tmp_path / "use.csv")]
    assert cli.main(arguments, {}, lambda _: reached()) == report.WAITS
    text = capsys.readouterr().out
    assert "they fit together, by the ledger's sums; make preview judges the rest:" in text
    assert "    llama-swap: {gpumem_mib: 5100}\n" in text
