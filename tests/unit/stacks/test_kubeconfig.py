"""Tests how a command chooses its cluster."""

import os
from pathlib import Path

import pytest
import yaml

from stacks.kubeconfig import KubeconfigError, current, sources

SERVER = "https://10.0.0.1:6443"


def written(path: Path, content: object) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def test_the_cluster_is_found_across_several_files_as_kubectl_does(tmp_path: Path) -> None:
    first = {"clusters": [{"name": "a", "cluster": {"server": SERVER}}], "current-context": ""}
    second = {"contexts": [{"name": "prod", "context": {"cluster": "a"}}], "current-context": "prod"}
    third = {"clusters": [{"name": "a", "cluster": {"server": "https://other"}}], "current-context": "x"}
    paths = [written(tmp_path / str(number), each) for number, each in enumerate((first, second, third))]
    found = current(sources({"KUBECONFIG": os.pathsep.join(map(str, ["", tmp_path / "missing", *paths]))}))
    assert str(found) == f"context prod at {SERVER}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "is not there; set KUBECONFIG, or start a throw-away: make cluster"),
        ("{}", "names no current-context; run kubectl config use-context"),
        ("current-context: x", "has no server for the context x"),
        ("{current-context: x, contexts: [{name: x, context: {cluster: y}}]}", "has no server for the context x"),
        ("- a list", "cannot be read as a kubeconfig"),
        ("clusters: [{name: x}]", "cannot be read as a kubeconfig"),
        ("[", "cannot be read as a kubeconfig"),
    ],
)
def test_no_cluster_is_a_sentence(text: str | None, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(KubeconfigError) as refused:
        current([path])
    assert str(refused.value) == f"no cluster: {path} {reason}"
