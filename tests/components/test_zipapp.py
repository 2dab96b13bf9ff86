import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pulumi
import pytest

from components import zipapp


def test_two_builds_are_the_same_bytes() -> None:
    assert zipapp.build().content == zipapp.build().content


def test_the_bytes_do_not_tell_when_and_in_which_order_the_files_were_written(tmp_path: Path) -> None:
    for root, order in ((tmp_path / "a", ("agents", "tenancy")), (tmp_path / "b", ("tenancy", "agents"))):
        for package in order:
            (root / package).mkdir(parents=True)
            (root / package / "x.py").write_text("x = 1\n")
            (root / package / "ignored.txt").write_text(str(root))
    assert zipapp.build(tmp_path / "a") == zipapp.build(tmp_path / "b")


def test_another_source_is_another_name(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    source = tmp_path / "agents" / "x.py"
    source.write_text("x = 1\n")
    before = zipapp.build(tmp_path)
    source.write_text("x = 2\n")
    assert zipapp.build(tmp_path).config_map != before.config_map


def test_it_holds_the_agents_and_the_domain_and_nothing_else() -> None:
    with zipfile.ZipFile(BytesIO(zipapp.build().content)) as archive:
        names = archive.namelist()
    assert {"__main__.py", "agents/__main__.py", "tenancy/ledger.py"} <= set(names)
    assert {name.partition("/")[0] for name in names} == {"__main__.py", "agents", "tenancy"}
    assert all(name.endswith(".py") for name in names)


def test_isolated_python_runs_it_and_says_how_to_use_it(tmp_path: Path) -> None:
    path = tmp_path / "agents.pyz"
    path.write_bytes(zipapp.build().content)
    run = subprocess.run([sys.executable, "-I", path], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 2
    assert "name one agent of reconcile, watchdog, gate, exporter" in run.stderr


def test_code_that_no_config_map_holds_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "big.py").write_text("#" * zipapp.LIMIT_BYTES)
    with pytest.raises(pulumi.RunError, match=rf"a ConfigMap holds {zipapp.LIMIT_BYTES}; make agents/ smaller"):
        zipapp.build(tmp_path)
