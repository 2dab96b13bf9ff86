"""Tests the completion of subcommands, flags and names in a shell."""

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from gpumem import arguments, cluster_names, completion
from tests.support.informing import PATIENCE_SECONDS
from tests.support.kubectl import FakeApi, api, device_slice, node, pod


class Reached(nullcontext[Any], FakeApi):
    flags: Sequence[str] = ()

    def namespace(self) -> str:
        return "immich"


def cluster() -> Reached:
    found = api(
        [pod("ml-2", 3000), pod("ml-1", 3000), pod("swap", 5000, "llama-swap")],
        [node("k8s-node1"), node("k8s-node2", "whole"), node("other", "none")],
        slices=[device_slice("k8s-node1", 15360, 15360)],
    )
    found.lists["/apis/apps/v1/namespaces/immich/deployments"] = [{"metadata": {"name": "ml"}}]
    found.lists["/apis/ray.io/v2/namespaces/llama-swap/rayclusters"] = [{"metadata": {"name": "train"}}]
    found.objects["/apis/ray.io"] = {"preferredVersion": {"groupVersion": "ray.io/v2"}}
    answer = Reached()
    answer.__dict__.update(vars(found))
    answer.enter_result = answer
    return answer


def completed(
    line: str, found: Reached | None = None, directive: str = ":4", seconds: float = PATIENCE_SECONDS
) -> list[str]:
    source = found or cluster()

    def reach(flags: list[str]) -> Any:
        source.flags = flags
        return source

    def names(argument: str, begun: str, given: Mapping[str, Sequence[str]]) -> list[str]:
        return cluster_names.find(argument, begun, given, reach, seconds)

    *shown, last = completion.candidates(line.split(" "), arguments.parser(), names)
    assert last == directive
    return shown


def test_verbs_flags_and_their_values_are_completed() -> None:
    assert completed("w") == ["who", "why"]
    assert completed("who --n") == ["--namespace", "--node", "--no-headers"]
    assert completed("who -o ") == ["text", "json", "yaml", "wide", "name"]
    assert completed("advise --from ") == []
    assert completed("nonsense ") == []


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("who --pool ", ["t4", "batch"]),
        ("free --pool b", ["batch"]),
        ("who --node ", ["k8s-node1", "k8s-node2"]),
        ("who --device ", ["0", "1", "GPU-k8s-node1-0", "GPU-k8s-node1-1"]),
        ("who --node k8s-node2 --device ", []),
        ("who --node=k8s-node1 --device 1", ["1"]),
        ("who -n ", ["immich", "llama-swap", "team-a", "tts"]),
        ("fit 4000 --tenant im", ["immich"]),
        ("drain k8s", ["k8s-node1", "k8s-node2"]),
        ("why ml", ["ml-1", "ml-2"]),
        ("why -n llama-swap s", ["swap", "statefulset/"]),
        ("why deployment/", ["deployment/ml"]),
        ("why deploy/m", ["deploy/ml"]),
        ("why -n llama-swap raycluster/", ["raycluster/train"]),
    ],
)
def test_names_of_the_cluster_are_completed(line: str, names: list[str]) -> None:
    assert completed(line) == names


def test_after_a_kind_the_shell_adds_no_space() -> None:
    assert completed("why dae", directive=":6") == ["daemonset/"]


def test_a_second_target_is_not_completed() -> None:
    assert "ml-1" not in completed("why ml-2 ")
    assert "k8s-node2" not in completed("drain k8s-node1 ")


def test_the_cluster_is_that_of_the_line() -> None:
    found = cluster()
    completed("who --context lab --as=me --pool ", found)
    assert found.flags == ["--context=lab", "--as=me"]
    assert completed("who --system-namespace elsewhere --pool ", found) == []


def test_after_an_error_nothing_is_completed_and_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    found = cluster()
    found.refused.add("/api/v1/nodes")
    assert completed("who --node ", found) == []
    found.lists["/api/v1/namespaces/immich/pods"] = [{"metadata": {}}]
    assert completed("why ml", found) == []
    assert completed("why nonsense/", found) == []
    assert capsys.readouterr() == ("", "")


def test_a_slow_cluster_gives_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cluster()
    monkeypatch.setattr(found, "get", lambda path: time.sleep(PATIENCE_SECONDS), raising=False)
    began = time.monotonic()
    assert completed("who --pool ", found, seconds=0.2) == []
    assert time.monotonic() - began < PATIENCE_SECONDS
