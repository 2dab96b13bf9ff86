"""Tests that the extender creates its certificates, without openssl."""

import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from agents.extender.certs import make_certificates


def test_each_file_gets_its_own_name_and_only_keys_are_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def openssl(command: list[str], *, cwd: Path, **_options: object) -> subprocess.CompletedProcess[str]:
        for flag in ("-keyout", "-out"):
            (cwd / command[command.index(flag) + 1]).write_text("PEM")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(subprocess, "run", openssl)
    make_certificates(tmp_path)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes.keys() == {"server.crt", "server.key", "client.crt", "client.key"}
    assert {name for name, mode in modes.items() if not mode & stat.S_IROTH} == {"server.key", "client.key"}
