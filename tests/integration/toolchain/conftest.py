"""A tool that exists nowhere, its release on a server of our own, a Go module in a zip, a `go` that is a script."""

import hashlib
import io
import os
import shutil
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from toolchain.installer.ahead import Ahead
from toolchain.installer.console import Console
from toolchain.installer.download import Internet
from toolchain.installer.pins import Module
from toolchain.installer.store import Store
from toolchain.installer.tool import GoBuild, OnPath, Release, Tool
from toolchain.installer.ways import Installer

# What `go mod download` computed for the zip that module_zip writes.
STAGES_H1 = "h1:04C0q4HD33Y9fmmwtzS98avza6mqLa2PnFXh/1o8bjI="
STAGES = {
    "go.mod": "module example.com/stages\n",
    "charts/demo/Chart.yaml": "name: demo\n",
    "charts/demo/templates/a.yaml": "kind: A\n",
    "bin/shim": "#!/bin/sh\necho shim\n",
    "README.md": "stages\n",
}


def module_zip(file: Path) -> Path:
    """The zip of example.com/stages v1.0.0, as a module proxy serves it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(file, "w") as archive:
        for name, content in STAGES.items():
            archive.writestr(f"example.com/stages@v1.0.0/{name}", content)
    return file


def script(file: Path, body: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return file


def says(version: str) -> str:
    return f"echo gauge version v{version}"


class Handler(SimpleHTTPRequestHandler):
    server: "Server"

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Serves a folder on loopback and remembers what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.requests: list[str] = []
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(folder)))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "served"
    folder.mkdir(exist_ok=True)
    with Server(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@dataclass
class Workshop:
    """One checkout and one cache, with a PATH that holds nothing but what a test puts there."""

    folder: Path
    output: io.StringIO = field(default_factory=io.StringIO)
    internet: Internet = field(default_factory=lambda: Internet("http://127.0.0.1:9/"))  # nobody listens there

    @property
    def store(self) -> Store:
        return Store(cache=self.folder / "cache", shelf=self.folder / "checkout" / ".toolchain")

    @property
    def bin(self) -> Path:
        """The one folder on PATH, besides the system's shell."""
        return self.folder / "bin"

    @property
    def module(self) -> Module:
        return Module(self.folder / "checkout" / "toolchain" / "gauge")

    @property
    def said(self) -> str:
        return self.output.getvalue()

    def install(self, tool: Tool) -> None:
        Installer(self.store, self.internet, Console(self.output), Ahead([])).install(tool)

    def gauge(self, version: str = "1.2.3", release: Release | None = None, package: str = "example.com/gauge") -> Tool:
        """A tool of one program, `gauge`, which tells its version."""
        return Tool(
            name="gauge",
            version=version,
            platform="linux-amd64",
            links={"bin/gauge": "gauge"},
            on_path=OnPath(command=("gauge", "--version"), accepts=lambda found, wanted: found == wanted),
            release=release,
            recipes=(GoBuild(module=self.module, package=package, output="gauge", stamps={"v": version}),),
        )

    def release(self, address: str, content: str, *, published: str | None = None) -> Release:
        """An archive with `gauge` and its checksums file, under the folder `served`."""
        served = self.folder / "served"
        served.mkdir(exist_ok=True)
        archive = served / "gauge.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            data = f"#!/bin/sh\n{content}\n".encode()
            member = tarfile.TarInfo("gauge-1.2.3/gauge")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        digest = published or hashlib.sha256(archive.read_bytes()).hexdigest()
        (served / "SHA256SUMS").write_text(f"{'0' * 64}  other.tar.gz\n{digest}  gauge.tar.gz\n")
        return Release(url=f"{address}/gauge.tar.gz", checksums=f"{address}/SHA256SUMS", members=("gauge-1.2.3/gauge",))

    def has_go(self, build: str) -> None:
        """Puts a `go` on PATH; `build` is what it does for `go build`, with the output's path in $out."""
        find_output = 'while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done'
        calls = self.folder / "go-calls"
        script(self.bin / "go", f'echo "$@" >> {calls}\n[ "$1" = build ] || exit 3\n{find_output}\n{build}')

    def go_calls(self) -> list[str]:
        calls = self.folder / "go-calls"
        return calls.read_text().splitlines() if calls.exists() else []


WRITE_GAUGE = """printf '#!/bin/sh\\necho gauge version v1.2.3\\n' > "$out"; chmod +x "$out\""""


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    made = Workshop(tmp_path)
    made.bin.mkdir()
    made.module.folder.mkdir(parents=True)
    (made.module.folder / "go.mod").write_text(
        "module toolchain/gauge\n\ngo 1.26.0\n\nrequire example.com/stages v1.0.0\n"
    )
    (made.module.folder / "go.sum").write_text(f"example.com/stages v1.0.0 {STAGES_H1}\n")
    monkeypatch.setenv("PATH", f"{made.bin}{os.pathsep}{system_programs(tmp_path / 'system')}")
    monkeypatch.delenv("GOPROXY", raising=False)
    return made


def system_programs(folder: Path) -> Path:
    """A PATH entry with the few programs that scripts need, so that no tool of this machine is found by chance."""
    folder.mkdir()
    for program in ("sh", "env", "chmod", "cat", "mkdir", "touch", "tr"):
        found = shutil.which(program, path=os.defpath)
        assert found is not None
        (folder / program).symlink_to(found)
    return folder
