"""Tests that the agents' zipapp has the right files, and that its hash depends only on the source."""

import base64
import hashlib
import secrets
import zipfile
from importlib import metadata
from io import BytesIO
from pathlib import Path

import pulumi
import pytest

from components.base import zipapp


def test_the_bytes_do_not_tell_when_and_in_which_order_the_files_were_written(tmp_path: Path) -> None:
    for root, order in ((tmp_path / "a", ("agents", "tenancy")), (tmp_path / "b", ("tenancy", "agents"))):
        for package in order:
            (root / package).mkdir(parents=True)
            (root / package / "x.py").write_text("x = 1\n")
            (root / package / "ignored.txt").write_text(str(root))
    assert zipapp.build(tmp_path / "a") == zipapp.build(tmp_path / "b")


def test_it_holds_the_agents_and_the_domain_and_nothing_else() -> None:
    with zipfile.ZipFile(BytesIO(zipapp.build().content)) as archive:
        names = archive.namelist()
    assert {"__main__.py", "agents/__main__.py", "tenancy/ledger.py"} <= set(names)
    assert {name.partition("/")[0] for name in names} == {"__main__.py", "agents", "tenancy"}
    assert all(name.endswith(".py") for name in names)


def test_the_boards_archive_holds_the_plugin_and_no_agent_of_privileged_pods() -> None:
    with zipfile.ZipFile(BytesIO(zipapp.build_for_board().content)) as archive:
        names = archive.namelist()
        assert b'run_module("gpumem.board_pod"' in archive.read("__main__.py")
    assert {name.partition("/")[0] for name in names} == {"__main__.py", "agents", "gpumem", "tenancy"}
    assert not {name.split("/")[1] for name in names if name.startswith("agents/")} & {"exporter", "guard"}


def test_the_nodes_archive_holds_nvmls_bindings_besides_as_they_were_published() -> None:
    plain, vendored = (zipfile.ZipFile(BytesIO(each.content)) for each in (zipapp.build(), zipapp.build_for_nodes()))
    assert set(vendored.namelist()) - set(plain.namelist()) == {"pynvml.py"}
    (recorded,) = (file for file in metadata.files("nvidia-ml-py") or () if file.name == "pynvml.py")
    digest = hashlib.sha256(vendored.read("pynvml.py")).digest()
    assert recorded.hash is not None
    assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == recorded.hash.value


def test_of_the_agents_the_nodes_archive_holds_those_alone_that_a_node_runs() -> None:
    """Pods that see the host's processes have a zipapp without code that evicts pods, binds pods or writes capacity."""
    plain, nodes = (zipfile.ZipFile(BytesIO(each.content)) for each in (zipapp.build(), zipapp.build_for_nodes()))
    left_out = {name.split("/")[1] for name in set(plain.namelist()) - set(nodes.namelist())}
    assert left_out == {"extender", "gate", "reconcile", "watchdog"}


@pytest.mark.parametrize(("locked", "refusal"), [("1.0", "was changed after"), ("2.0", "not the locked version")])
def test_bindings_that_are_not_the_locked_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: str, refusal: str
) -> None:
    info = tmp_path / "nvidia_ml_py-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-ml-py\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"pynvml.py,sha256={'A' * 43},6\n")
    (tmp_path / "pynvml.py").write_text("x = 1\n")
    (tmp_path / "requirements.lock").write_text(f"nvidia-ml-py=={locked}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(pulumi.RunError, match=refusal):
        zipapp.build_for_nodes(tmp_path)


def test_code_that_no_config_map_holds_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "big.py").write_text(secrets.token_hex(zipapp.LIMIT_BYTES))
    with pytest.raises(pulumi.RunError, match=rf"a ConfigMap holds {zipapp.LIMIT_BYTES}; make agents/ smaller"):
        zipapp.build(tmp_path)
