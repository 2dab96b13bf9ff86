"""Tests that `make cluster` ends with an error on a machine that cannot host a node."""

from pathlib import Path

import pytest

from toolchain.cluster import __main__ as command
from toolchain.cluster import node, paths


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FOLDER", tmp_path / "cluster")
    monkeypatch.setattr(paths, "TOOLCHAIN", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_a_cluster_without_a_node_must_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["start", "--no-node"]) == 1
    assert capsys.readouterr().err.startswith("cluster: not installed: etcd, kube-apiserver, ")


@pytest.mark.parametrize(
    ("user", "program", "reason"),
    [
        (1000, "", "a real node needs root"),
        (0, "", "a real node needs kubelet, containerd, containerd-shim-runc-v2, ctr, runc, unshare, mount, ip: run "),
        (
            0,
            "echo Operation not permitted >&2; exit 1",
            "a real node needs namespaces, which this container or machine",
        ),
        (0, "exit 0", None),
    ],
)
def test_each_reason_is_named(
    user: int, program: str, reason: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node.sys, "platform", "linux")
    monkeypatch.setattr(node.os, "geteuid", lambda: user)
    for name in (*paths.NODE, "runc", "unshare", "mount", "ip") if program else ():
        (tmp_path / "bin").mkdir(exist_ok=True)
        for path in (tmp_path / name, tmp_path / "bin" / name):
            path.write_text(f"#!/bin/sh\n{program}\n")
            path.chmod(0o755)
    found = node.why_not()
    assert found is None if reason is None else str(found).startswith(reason)
