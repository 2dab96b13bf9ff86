"""Files out of Go modules: proven by go.sum, whoever serves them."""

import json
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.integration.toolchain.conftest import STAGES_H1, Server, Workshop, module_zip, script
from toolchain.installer.console import Console
from toolchain.installer.errors import ToolchainError
from toolchain.installer.modules import copy_files, h1
from toolchain.installer.tool import ModuleFiles

PROXY_PATH = "example.com/stages/@v/v1.0.0.zip"


def copy(workshop: Workshop, files: dict[str, str]) -> Path:
    into = workshop.folder / "into"
    into.mkdir()
    copy_files(
        ModuleFiles(module=workshop.module, path="example.com/stages", files=files), into, Console(workshop.output)
    )
    return into


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_checksum_is_the_one_that_go_computes(tmp_path: Path) -> None:
    assert h1(module_zip(tmp_path / "stages.zip")) == STAGES_H1


def test_the_checksum_depends_on_names_and_content_and_not_on_the_order_in_the_zip(tmp_path: Path) -> None:
    def checksum(*files: tuple[str, str]) -> str:
        with ZipFile(tmp_path / "module.zip", "w") as archive:
            for name, content in files:
                archive.writestr(name, content)
        return h1(tmp_path / "module.zip")

    original = checksum(("a", "1"), ("b", "2"))
    assert checksum(("b", "2"), ("a", "1")) == original
    assert checksum(("a", "1"), ("b", "3")) != original
    assert checksum(("a", "1"), ("c", "2")) != original


def test_without_go_a_folder_comes_from_the_module_proxy(
    workshop: Workshop, served: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    module_zip(workshop.folder / "served" / PROXY_PATH)
    monkeypatch.setenv("GOPROXY", f"off,{served.address},direct")
    into = copy(workshop, {"charts/demo/": ""})
    assert files_in(into) == ["Chart.yaml", "templates/a.yaml"]
    assert (into / "Chart.yaml").read_text() == "name: demo\n"


def test_with_go_the_zip_is_gos_own_copy(workshop: Workshop) -> None:
    zipped = module_zip(workshop.folder / "gocache" / "stages.zip")
    answer = workshop.folder / "answer"
    answer.write_text(json.dumps({"Path": "example.com/stages", "Zip": str(zipped)}))
    script(workshop.bin / "go", f'[ "$*" = "mod download -json example.com/stages@v1.0.0" ] && cat {answer}')
    assert files_in(copy(workshop, {"README.md": "docs/README.md"})) == ["docs/README.md"]


def test_a_script_in_a_module_becomes_executable_and_a_text_does_not(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    module_zip(workshop.folder / "served" / PROXY_PATH)
    monkeypatch.setenv("GOPROXY", f"file://{workshop.folder / 'served'}")
    into = copy(workshop, {"bin/shim": "shim", "README.md": "README.md"})
    assert (into / "shim").stat().st_mode & 0o777 == 0o755
    assert (into / "README.md").stat().st_mode & 0o777 == 0o644


def test_a_module_that_is_not_what_go_sum_says_is_refused(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    with ZipFile(module_zip(workshop.folder / "served" / PROXY_PATH), "a") as archive:
        archive.writestr("example.com/stages@v1.0.0/charts/demo/extra.yaml", "kind: Surprise\n")
    monkeypatch.setenv("GOPROXY", f"file://{workshop.folder / 'served'}")
    with pytest.raises(ToolchainError, match=r"the module proxy served h1:.* go\.sum says h1:04C0q4H"):
        copy(workshop, {"charts/demo/": ""})
    assert files_in(workshop.folder / "into") == []


def test_a_login_page_in_place_of_a_module_is_refused(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    page = module_zip(workshop.folder / "served" / PROXY_PATH)
    page.write_text("<html>Please log in</html>")
    monkeypatch.setenv("GOPROXY", f"file://{workshop.folder / 'served'}")
    with pytest.raises(ToolchainError, match=r"served no zip, go\.sum says"):
        copy(workshop, {"charts/demo/": ""})


def test_a_module_that_cannot_be_had_names_both_ways(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOPROXY", "direct")
    with pytest.raises(ToolchainError, match=r"cannot be had: Go is not installed; GOPROXY names no module proxy"):
        copy(workshop, {"charts/demo/": ""})


def test_a_file_that_the_module_lacks_is_named(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    module_zip(workshop.folder / "served" / PROXY_PATH)
    monkeypatch.setenv("GOPROXY", f"file://{workshop.folder / 'served'}")
    with pytest.raises(ToolchainError, match=r"example.com/stages@v1.0.0/charts/none/ is not in the module"):
        copy(workshop, {"charts/none/": ""})
