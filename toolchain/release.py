"""Builds the artifacts of a release: `python -m toolchain.release FOLDER TAG`, where TAG may be empty.

Before it, `make docs` builds the site. The release workflow only calls `make release-dry-run`, and uploads the folder.
Whether wheel, template, pack, plugin and SDKs work, tests/integration tests.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from components.base import zipapp
from gpu_tenancy.plugin.provider import Host
from toolchain import pack, plugin, template, wheel

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "site"
SUMS, NOTES, KREW = "SHA256SUMS", "notes.md", "gpumem.yaml"
LANGUAGES = ("nodejs", "go")
GO_SDK = "example.com/pulumi-gputenancy/sdk/go"
_DOCKERFILE, _KREW = (ROOT / "toolchain" / name for name in ("agents.Dockerfile", "krew.yaml"))
_REPOSITORY = "OWNER/gpu-tenancy"  # outside of a workflow


class ReleaseError(Exception):
    """Raised if an artifact cannot be built. The message is for the maintainer."""


def build(folder: Path, version: str, site: Path) -> None:
    """Writes the artifacts into the folder. Raises ReleaseError."""
    if not (site / "index.html").is_file():
        raise ReleaseError(f"{site} is not there; run make docs")
    text = notes((ROOT / "CHANGELOG.md").read_text(), version)
    command = folder / f"{plugin.NAME}-{version}"
    plugin.main(command)
    shutil.copy(ROOT / "LICENSE", command)
    docs = Path(shutil.copytree(site, folder / f"gpu-tenancy-docs-{version}"))
    made = [template.build(folder), pack.build(folder), docs, image_context(folder, version), *sdks(folder, version)]
    archive, *_ = [_archived(each) for each in (command, *made)]
    (folder / KREW).write_text(krew(archive, version))
    (folder / NOTES).write_text(text)
    sums = [f"{_sha256(path)}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / SUMS).write_text("".join(sums))


def image_context(folder: Path, version: str) -> Path:
    """Writes the folder from which `docker build` makes the agents' image."""
    context = folder / f"gpu-tenancy-agents-{version}"
    (context / "code").mkdir(parents=True)
    shutil.copy(_DOCKERFILE, context / "Dockerfile")
    for each in (zipapp.build(), zipapp.build_for_nodes(), zipapp.build_for_board()):
        (context / "code" / Path(each.image_path).name).write_bytes(each.content)
    return context


def sdks(folder: Path, version: str) -> list[Path]:
    """Writes the SDKs for other languages, which Pulumi generates from the schema of the components."""
    made = []
    with tempfile.TemporaryDirectory() as scratch:
        schema = Path(scratch) / "schema.json"
        schema.write_text(str(Host(version).schema))
        for language in LANGUAGES:
            _pulumi("package", "gen-sdk", str(schema), "--language", language, "--out", scratch)
            sdk = Path(shutil.move(Path(scratch) / language, folder / f"gpu-tenancy-sdk-{language}-{version}"))
            complete(sdk, language)
            made.append(sdk)
    return made


def complete(sdk: Path, language: str) -> None:
    """Writes the files of an SDK that Pulumi's generator leaves out, or writes with a mistake.

    The generator writes no go.mod. If Go 1.26 has built the generator, the generator writes wrong relative imports into
    the folder `types` of the SDK for TypeScript.
    """
    if language == "go":
        (sdk / "go.mod").write_text(f"module {GO_SDK}\n\ngo 1.24\n")
        return
    for file in (sdk / "types" / f"{name}.ts" for name in ("index", "input", "output")):
        file.write_text(re.sub(r'"\./(types/|utilities)', r'"../\1', file.read_text()))


def krew(archive: Path, version: str) -> str:
    """Returns krew's manifest of the plugin."""
    return _KREW.read_text().format(
        version=version,
        page=f"https://github.com/{os.environ.get('GITHUB_REPOSITORY', _REPOSITORY)}",
        archive=archive.name,
        sha256=_sha256(archive),
        program=plugin.NAME,
    )


def notes(changelog: str, version: str) -> str:
    """Returns the changelog's section of this version. Raises ReleaseError."""
    found = re.search(rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog, re.DOTALL | re.MULTILINE)
    if found is None or not found[1].strip():
        raise ReleaseError(f"CHANGELOG.md has no section [{version}]; rename [Unreleased], or change the tag")
    return found[1].strip() + "\n"


def _archived(made: Path) -> Path:
    """Replaces a folder by its archive."""
    archive = pack.archive(made)
    shutil.rmtree(made)
    return archive


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _pulumi(*arguments: str) -> None:
    program, home = ROOT / ".toolchain" / "bin" / "pulumi", ROOT / ".toolchain" / "pulumi-home"
    environment = {**os.environ, "PULUMI_HOME": str(home), "PULUMI_SKIP_UPDATE_CHECK": "true"}
    done = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"pulumi {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


def main(folder: Path, tag: str, site: Path = SITE) -> None:
    """Builds all artifacts. Raises ReleaseError, also if the tag is not the project's version."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if tag not in ("", f"v{version}"):
        raise ReleaseError(f"the tag {tag} is not v{version}, the version in pyproject.toml; change one of them")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    build(folder.resolve(), version, site)
    print("".join(f"{path.stat().st_size:>9}  {path.name}\n" for path in sorted(folder.iterdir())), end="")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), tag=sys.argv[2])
    except (ReleaseError, wheel.WheelError) as error:
        sys.exit(str(error))
