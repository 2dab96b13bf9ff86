from pathlib import Path

import pytest

from agents.guard.oom_score_adj import AdjOutcome, lower_adj
from agents.node.cgroup import Container, container_in

UID = "0aaf3b32-5b3c-4a2e-9b54-0b5bba3ea9d4"
ID = "a" * 64
POD = Container(UID, ID)


@pytest.fixture
def process(tmp_path: Path) -> Path:
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "cgroup").write_text(f"0::/kubepods/burstable/pod{UID}/{ID}\n")
    (folder / "oom_score_adj").write_text("869\n")
    return folder


def adj(process: Path) -> int:
    return int((process / "oom_score_adj").read_text()[:3])


@pytest.mark.parametrize("value", ["474", "473", "-998"])
def test_a_value_is_never_raised(process: Path, value: str) -> None:
    (process / "oom_score_adj").write_text(f"{value}\n")
    assert lower_adj(process.parent, 7, POD, 474) is AdjOutcome.LOW
    assert (process / "oom_score_adj").read_text() == f"{value}\n"


def test_a_process_that_took_the_number_after_the_first_look_is_left_alone(
    process: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced(text: str) -> Container | None:
        process.rename(process.with_name("gone"))
        process.mkdir()
        (process / "cgroup").write_text("0::/system.slice/sshd.service\n")
        (process / "oom_score_adj").write_text("900\n")
        return container_in(text)

    monkeypatch.setattr("agents.guard.oom_score_adj.container_in", replaced)
    lower_adj(process.parent, 7, POD, 474)
    assert adj(process) == 900
