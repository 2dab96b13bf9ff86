"""Tests that the installer gets a tool from every kind of source: a release, a Go module, or a build."""

import hashlib
import io
import os
import sysconfig
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.scripts import script, system_programs
from toolchain.installer import download
from toolchain.installer.errors import ToolchainError
from toolchain.installer.pins import Module
from toolchain.installer.store import Store
from toolchain.installer.tool import GoBuild, PipInstall, Release, Tool
from toolchain.installer.ways import Installer

NOWHERE = "http://127.0.0.1:9"  # An address at which no server listens.
WRITE = 'echo built > "$out"'


class Server(ThreadingHTTPServer):
    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder)))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def served(workshop: "Workshop", monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server(workshop.folder / "served") as server:
        monkeypatch.setattr(download, "TRIED_FIRST", server.address)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@dataclass
class Workshop:
    folder: Path

    @property
    def store(self) -> Store:
        return Store(cache=self.folder / "cache", shelf=self.folder / "checkout" / ".toolchain")

    @property
    def module(self) -> Module:
        return Module(self.folder / "checkout" / "toolchain" / "gauge")

    def install(self, *tools: Tool) -> None:
        Installer(self.store).install(tools)

    def gauge(self, version: str = "1.2.3", release: Release | None = None, package: str = "example.com/gauge") -> Tool:
        return Tool(
            name="gauge",
            version=version,
            platform="linux-amd64",
            links={"bin/gauge": "gauge"},
            release=release,
            recipes=(GoBuild(module=self.module, programs={"gauge": package}, stamps={"v": version}),),
        )

    def release(self, address: str, *, published: str | None = None) -> Release:
        archive = self.folder / "served" / "gauge.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            member = tarfile.TarInfo("gauge-1.2.3/gauge")
            member.size = 8
            tar.addfile(member, io.BytesIO(b"released"))
        digest = published or hashlib.sha256(archive.read_bytes()).hexdigest()
        (archive.parent / "SHA256SUMS").write_text(f"{'0' * 64}  other.tar.gz\n{digest}  gauge.tar.gz\n")
        return Release(url=f"{address}/gauge.tar.gz", checksums=f"{address}/SHA256SUMS", members=("gauge-1.2.3/gauge",))

    def has_go(self, build: str = WRITE) -> None:
        find_output = 'while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done'
        calls = self.folder / "go-calls"
        script(self.folder / "bin" / "go", f'[ "$1" = build ] || exit 3\necho "$@" >> {calls}\n{find_output}\n{build}')

    def go_calls(self) -> list[str]:
        calls = self.folder / "go-calls"
        return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    made = Workshop(tmp_path)
    (tmp_path / "served").mkdir()
    made.module.folder.mkdir(parents=True)
    (made.module.folder / "go.mod").write_text(
        "module toolchain/gauge\n\ngo 1.26.0\n\nrequire example.com/stages v1.0.0\n"
    )
    (made.module.folder / "go.sum").write_text("example.com/stages v1.0.0 h1:some\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{system_programs(tmp_path / 'system')}")
    monkeypatch.setattr(download, "TRIED_FIRST", NOWHERE)
    download.why_not.cache_clear()
    return made


def test_the_official_release_is_taken_when_its_checksum_is_the_published_one(
    workshop: Workshop, served: Server
) -> None:
    tool = workshop.gauge(release=workshop.release(served.address))
    workshop.install(tool)
    assert [path.name for path in workshop.store.entry(tool).iterdir()] == ["gauge"]
    assert (workshop.store.shelf / "bin" / "gauge").read_text() == "released"


def test_a_release_with_another_checksum_is_refused_and_nothing_is_kept(workshop: Workshop, served: Server) -> None:
    workshop.has_go()
    tool = workshop.gauge(release=workshop.release(served.address, published="ab" * 32))
    with pytest.raises(ToolchainError, match=f"{'ab' * 32} is published for it: refused"):
        workshop.install(tool)
    assert not [path for path in workshop.store.cache.iterdir() if path.is_dir()]
    assert workshop.go_calls() == []


@pytest.mark.parametrize(
    ("file", "content"),
    [("gauge.tar.gz", None), ("SHA256SUMS", f"{'0' * 64}  other.tar.gz\n")],
)
def test_a_release_that_is_not_there_or_not_published_is_built_instead(
    workshop: Workshop, served: Server, file: str, content: str | None
) -> None:
    workshop.has_go()
    release = workshop.release(served.address)
    (workshop.folder / "served" / file).unlink()
    if content:
        (workshop.folder / "served" / file).write_text(content)
    workshop.install(workshop.gauge(release=release))
    assert len(workshop.go_calls()) == 1


def test_without_a_network_the_tool_is_built_from_the_pinned_module_with_its_flags(workshop: Workshop) -> None:
    workshop.has_go()
    tool = workshop.gauge(release=workshop.release(NOWHERE))
    workshop.install(tool)
    assert workshop.store.linked(tool)
    (call,) = workshop.go_calls()
    flags = "-tags= -gcflags=all=-dwarf=false -ldflags=-s -w -X v=1.2.3"
    assert call.startswith(f"build -trimpath -mod=readonly -buildvcs=false {flags} -p=")


def test_a_failing_build_shows_the_end_of_its_log_keeps_nothing_and_can_be_repeated(workshop: Workshop) -> None:
    workshop.has_go(f"{WRITE}; for line in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do echo line $line; done; exit 2")
    tool = workshop.gauge()
    leftover = workshop.store.cache / f"{workshop.store.entry(tool).name}.partial-of-a-killed-run"
    leftover.mkdir(parents=True)
    with pytest.raises(ToolchainError) as failure:
        workshop.install(tool)
    head, *lines = str(failure.value).splitlines()
    assert head == f"go build gauge failed (exit code 2); the end of {workshop.store.log(tool)}:"
    assert lines == [f"  | line {number}" for number in range(3, 18)]
    assert [path.name for path in workshop.store.cache.iterdir() if path.is_dir()] == ["logs"]
    workshop.has_go()
    workshop.install(tool)
    assert workshop.store.linked(tool)


PIP = """import sys
from pathlib import Path
program = Path(sys.argv[sys.argv.index("--target") + 1], "bin", "gauge")
program.parent.mkdir(parents=True)
program.write_text("wheel")
"""


def wheel(workshop: Workshop) -> Tool:
    recipe = PipInstall(requirements=workshop.module.folder / "go.mod", program="gauge")
    return Tool(name="gauge", version="1", platform="any", links={"bin/gauge": "gauge"}, recipes=(recipe,))


def test_a_python_without_ensurepip_gets_pip_from_debians_package(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the fix, the installer needed Debian's package python3-venv. Scripts replace `apt-get` and `dpkg`."""
    without_ensurepip(workshop, monkeypatch)
    script(
        workshop.folder / "bin" / "apt-get", 'case "$*" in *download*python3-pip-whl*) touch pip.deb;; *) exit 1;; esac'
    )
    pip = "usr/share/python-wheels/pip-1-py3-none-any.whl/pip"
    script(workshop.folder / "bin" / "dpkg", f"mkdir -p {pip}\ncat > {pip}/__main__.py <<'EOF'\n{PIP}EOF")
    workshop.install(wheel(workshop))
    tool = wheel(workshop)
    assert (workshop.store.shelf / "bin" / "gauge").read_text() == "wheel"
    assert [file.name for file in workshop.store.entry(tool).iterdir()] == ["gauge"]


def without_ensurepip(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    system_programs(workshop.folder / "more", "rm")
    monkeypatch.setenv("PATH", os.pathsep.join(str(workshop.folder / each) for each in ("bin", "more")))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(workshop.folder / name))
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: None)
