"""Builds the artifacts of a release, and uses each one in an empty folder.

`python -m toolchain.release FOLDER [TAG [BASE]]`: BASE is a folder with the base of the agents' image. Before it,
`make docs` builds the site. The release workflow only calls `make release-dry-run`, and uploads the folder.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from toolchain import agent_image, pack, plugin, template, wheel
from toolchain.agent_image import ImageError
from toolchain.cluster import image as local

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "site"
SUMS, NOTES, KREW, SBOM = "SHA256SUMS", "notes.md", "gpumem.yaml", "sbom.spdx.json"
_CHART = Path(".toolchain") / "charts" / "kueue" / "Chart.yaml"
_REPOSITORY = "OWNER/gpu-tenancy"  # outside of a workflow
_EXAMPLES, _LANGUAGES = ROOT / "examples", ROOT / "toolchain" / "languages"
_PROGRAMS = "import sys; sys.path.insert(0, sys.argv[1]); from agents.__main__ import programs; print(programs())"
GO_SDK = "example.com/pulumi-gputenancy/sdk/go"


class ReleaseError(Exception):
    """Raised if an artifact cannot be built or does not work. The message is for the maintainer."""


@dataclass(frozen=True)
class Release:
    """The folder of the artifacts, and the version without `v`."""

    folder: Path
    version: str

    def named(self, part: str) -> Path:
        return self.folder / f"{part}-{self.version}"


def build(release: Release, site: Path) -> None:
    """Writes the artifacts that need no installed package."""
    made = template.build(release.folder)
    _archived(made)
    _archived(pack.build(release.folder))
    command = release.named(plugin.NAME)
    plugin.main(command)
    shutil.copy(ROOT / "LICENSE", command)
    archive = _archived(command)
    (release.folder / KREW).write_text(yaml.safe_dump(krew(archive, release.version), sort_keys=False))
    if not (site / "index.html").is_file():
        raise ReleaseError(f"{site} is not there; run make docs")
    _archived(Path(shutil.copytree(site, release.named("gpu-tenancy-docs"))))
    (release.folder / NOTES).write_text(notes((ROOT / "CHANGELOG.md").read_text(), release.version))


def krew(archive: Path, version: str) -> Mapping[str, Any]:
    """Returns krew's manifest of the plugin. One archive is for all platforms, because it has only Python's source."""
    page = _page()
    where = {
        "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]},
        "uri": f"{page}/releases/download/v{version}/{archive.name}",
        "sha256": _sha256(archive),
        "files": [{"from": f"{plugin.NAME}-{version}/*", "to": "."}],
        "bin": plugin.NAME,
    }
    spec = {
        "version": f"v{version}",
        "homepage": page,
        "shortDescription": "Show the use of GPU memory",
        "description": "Shows the pods on each GPU, the free memory, and the reason why a pod waits.",
        "caveats": "The plugin needs Python 3.11 or later as python3 on PATH.",
        "platforms": [where],
    }
    api = "krew.googlecontainertools.github.com/v1alpha2"
    return {"apiVersion": api, "kind": "Plugin", "metadata": {"name": "gpumem"}, "spec": spec}


def notes(changelog: str, version: str) -> str:
    """Returns the changelog's section of this version. Raises ReleaseError."""
    found = re.search(rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog, re.DOTALL | re.MULTILINE)
    if found is None or not found[1].strip():
        raise ReleaseError(f"CHANGELOG.md has no section [{version}]; rename [Unreleased], or change the tag")
    return found[1].strip() + "\n"


def use(release: Release, empty: Path) -> None:
    """Uses each artifact in an empty folder. Writes the SDKs and the SBOM, which need the installed wheel."""
    for part in ("gpu-tenancy-template", "gpu-tenancy-policy", plugin.NAME):
        shutil.unpack_archive(f"{release.named(part)}.tar.gz", empty)
    version = f"{plugin.NAME} {release.version}\n"
    _expect(version, empty, str(empty / f"{plugin.NAME}-{release.version}" / plugin.NAME), "--version")
    project = empty / "gpus"
    project.mkdir()
    new = ("pulumi", "new", f"../gpu-tenancy-template-{release.version}", "--name", "gpus", "--stack", "dev", "--yes")
    _expect("Your new project is ready to go!", project, *new)
    installed = project / "venv" / "bin"
    _expect("gpu: 2000 MiB fit now", project, str(installed / plugin.NAME), "fit", "2000", "--stack", "gpus.yaml")
    policy = f"../gpu-tenancy-policy-{release.version}"
    _expect("Finished installing dependencies", project, "pulumi", "install", "--cwd", policy)
    _expect("✅ gpu-tenancy", project, "pulumi", "preview", "--suppress-outputs", "--policy-pack", policy)
    schema = empty / "schema.json"
    schema.write_text(_run(project, "pulumi", "package", "get-schema", str(installed / "pulumi-resource-gputenancy")))
    for language, uses in (("nodejs", use_in_typescript), ("go", use_in_go)):
        made = release.named(f"gpu-tenancy-sdk-{language}")
        _run(empty, "pulumi", "package", "gen-sdk", str(schema), "--language", language, "--out", str(empty / "sdk"))
        shutil.copytree(empty / "sdk" / language, made)
        complete(made, language)
        shutil.unpack_archive(_archived(made), empty / "sdks")
        uses(empty, empty / "sdks" / made.name)
    inspected = json.loads(_run(project, str(installed / "python"), "-m", "pip", "inspect"))["installed"]
    chart = yaml.safe_load((ROOT / _CHART).read_text())
    packages = [(each["metadata"]["name"], each["metadata"]["version"], "pypi") for each in inspected]
    listed = sbom("gpu-tenancy", release.version, [*sorted(packages), (chart["name"], str(chart["version"]), "helm")])
    (release.folder / SBOM).write_text(listed)


def image(release: Release, base: Path | None, empty: Path) -> None:
    """Builds the agents' image with its SBOM, and runs the image of this machine's architecture.

    Without `base`, the base is this machine's Python. Then the image is only tried, and is not an artifact.
    """
    architecture = local.ARCHITECTURES[platform.machine()]
    archive = release.folder / f"{agent_image.NAME}-{release.version}.oci.tar"
    platforms: tuple[str, ...] = agent_image.PLATFORMS
    if base is None:
        base, platforms, archive = empty / "base", (f"linux/{architecture}",), empty / archive.name
        local.write_python(empty / "base.tar")
        shutil.unpack_archive(empty / "base.tar", base)
    built = agent_image.build(base, archive, release.version, _page(), platforms)
    if archive.parent == release.folder:
        made = sbom(agent_image.NAME, release.version, built.packages)
        archive.with_name(f"{agent_image.NAME}-{release.version}.spdx.json").write_text(made)
        owner = os.environ.get("GITHUB_REPOSITORY_OWNER", "OWNER").lower()
        with (release.folder / NOTES).open("a") as notes:
            notes.write(f"\n### The agents' image\n\n`ghcr.io/{owner}/{agent_image.NAME}@{built.digest}`\n")
    agent_image.unpack(archive, empty / "root", architecture)
    root = () if os.geteuid() == 0 else ("sudo", "-n")
    python = (*root, "chroot", "--userspec=65532:65532", str(empty / "root"), "python", "-I", "-c", _PROGRAMS)
    for code in agent_image.codes():
        _expect("certify", empty, *python, code.image_path)


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


def use_in_typescript(empty: Path, sdk: Path) -> None:
    """Installs the SDK into a project, and checks the types of the SDK and of a program."""
    project = Path(shutil.copytree(_EXAMPLES / "typescript", empty / "typescript"))
    shutil.move(sdk, project / "sdks" / "gputenancy")
    _run(project, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline")
    for folder in ("sdks/gputenancy", "."):
        _run(project, str(project / "node_modules" / ".bin" / "tsc"), "-p", folder, "--skipLibCheck")


def use_in_go(empty: Path, sdk: Path) -> None:
    """Compiles a program with the SDK, and with the pinned modules of Pulumi's language host."""
    project = Path(shutil.copytree(_EXAMPLES / "go", empty / "go"))
    pinned = (_LANGUAGES / "go.mod").read_text()
    (project / "go.mod").write_text(f"{pinned}\nrequire {GO_SDK} v0.0.0\nreplace {GO_SDK} => {sdk}\n")
    shutil.copy(_LANGUAGES / "go.sum", project)
    _run(project, "go", "build", "-mod=mod", "-trimpath", "-o", "program", ".")


def sbom(name: str, version: str, found: Iterable[tuple[str, str, str]]) -> str:
    """Returns the packages of an artifact, with their versions and their kinds in purls, in SPDX 2.3."""
    packages = [
        {
            "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]", "-", f"{kind}-{package}"),
            "name": package,
            "versionInfo": number,
            "downloadLocation": "NOASSERTION",
            "externalRefs": [
                {
                    "referenceCategory": "PACKAGE-MANAGER",
                    "referenceType": "purl",
                    "referenceLocator": f"pkg:{kind}/{package.lower().replace('_', '-')}@{number}",
                }
            ],
        }
        for package, number, kind in found
    ]
    ours = "SPDXRef-pypi-gpu-tenancy"
    others = [each["SPDXID"] for each in packages if each["SPDXID"] != ours]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{name}-{version}",
        "documentNamespace": f"{_page()}/sbom/{name}/{version}",
        "creationInfo": {
            "created": _run(ROOT, "git", "log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd").strip(),
            "creators": ["Tool: gpu-tenancy-toolchain"],
        },
        "packages": packages,
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": ours},
            *({"spdxElementId": ours, "relationshipType": "DEPENDS_ON", "relatedSpdxElement": each} for each in others),
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def _page() -> str:
    return f"https://github.com/{os.environ.get('GITHUB_REPOSITORY', _REPOSITORY)}"


def _archived(made: Path) -> Path:
    """Replaces a folder by its archive."""
    archive = pack.archive(made)
    shutil.rmtree(made)
    return archive


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _expect(text: str, cwd: Path, *command: str) -> None:
    if text not in (printed := _run(cwd, *command)):
        raise ReleaseError(f"{' '.join(command)} did not print {text!r}:\n{printed}")


def _run(cwd: Path, *command: str) -> str:
    ours = {"PULUMI_HOME": str(ROOT / ".toolchain" / "pulumi-home"), "PULUMI_CONFIG_PASSPHRASE": "", "TZ": "UTC"}
    empty = {"PULUMI_BACKEND_URL": f"file://{cwd.parent}", "PULUMI_SKIP_UPDATE_CHECK": "true"}
    environment = {**os.environ, **ours, **empty, "PATH": f"{ROOT / '.toolchain' / 'bin'}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    try:
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ReleaseError(f"{command[0]} is not installed; a release needs it") from None
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main(folder: Path, tag: str, base: Path | None = None, site: Path = SITE) -> None:
    """Builds and uses all artifacts. Raises ReleaseError, also if the tag is not the project's version."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if tag not in ("", f"v{version}"):
        raise ReleaseError(f"the tag {tag} is not v{version}, the version in pyproject.toml; change one of them")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    release = Release(folder.resolve(), version)
    build(release, site)
    with tempfile.TemporaryDirectory(prefix="gpu-tenancy-release-") as empty:
        use(release, Path(empty))
        image(release, base, Path(empty))
    made = sorted(path for path in release.folder.iterdir() if path.name != SUMS)
    (release.folder / SUMS).write_text("".join(f"{_sha256(path)}  {path.name}\n" for path in made))
    print("".join(f"{path.stat().st_size:>9}  {path.name}\n" for path in [*made, release.folder / SUMS]), end="")


if __name__ == "__main__":
    try:
        output, tag, base, *_ = [*sys.argv[1:], "", ""]
        main(Path(output), tag, Path(base) if base else None)
    except (ReleaseError, ImageError, wheel.WheelError) as error:
        sys.exit(str(error))
