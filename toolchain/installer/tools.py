"""Reads the tools of each group from toolchain/tools.toml, and their versions from the pins."""

import platform
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolchain.installer.errors import ToolchainError
from toolchain.installer.pins import Module, python_pin
from toolchain.installer.tool import (
    ChangedModule,
    DebianPackages,
    Dependencies,
    GoBuild,
    ModuleFiles,
    PipInstall,
    Recipe,
    Release,
    Tool,
)

ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_ARCHIVES = {"linux": "tar.gz", "darwin": "zip"}
_TABLE: list[dict[str, Any]] = [
    {**entry, "name": name, "groups": groups}
    for entry in tomllib.loads((Path(__file__).parents[1] / "tools.toml").read_text())["tool"]
    for name, groups in entry.get("names", {entry.get("name"): entry.get("groups")}).items()
]
GROUPS = tuple(dict.fromkeys(group for entry in _TABLE for group in entry["groups"]))


@dataclass(frozen=True)
class InstallTarget:
    """A checkout, and the operating system and the architecture of its machine."""

    checkout: Path
    system: str  # The name of the operating system is linux or darwin.
    architecture: str  # The name of the architecture is amd64 or arm64.

    def module(self, folder: str) -> Module:
        return Module(self.checkout / "toolchain" / folder)

    def requirements(self, folder: str) -> Path:
        return self.checkout / "toolchain" / folder / "requirements.txt"


def install_target(checkout: Path) -> InstallTarget:
    system, machine = platform.system().lower(), platform.machine().lower()
    if system not in _ARCHIVES or machine not in ARCHITECTURES:
        raise ToolchainError(f"the tools are for Linux and macOS on amd64 and arm64; this is {system} on {machine}")
    return InstallTarget(checkout, system, ARCHITECTURES[machine])


def tools(target: InstallTarget, group: str) -> list[Tool]:
    """Returns the tools of the group that this machine lacks."""
    return [
        _tool(target, entry)
        for entry in _TABLE
        if group in entry["groups"] and target.system in entry.get("systems", _ARCHIVES) and not _is_there(entry)
    ]


def go(target: InstallTarget) -> Tool:
    """Returns Go, for a machine without Go that builds tools."""
    return next(_tool(target, entry) for entry in _TABLE if entry["name"] == "go")


def _is_there(entry: Mapping[str, Any]) -> bool:
    return any(all(map(shutil.which, programs.split())) for programs in entry.get("unless", ()))


def _tool(target: InstallTarget, entry: Mapping[str, Any]) -> Tool:
    first, version = entry["recipes"][0], _version(target, entry)
    texts = {
        "name": entry["name"],
        "version": version,
        "system": target.system,
        "architecture": target.architecture,
        "platform": f"{target.system}-{target.architecture}",
        "x64": target.architecture.replace("amd64", "x64"),
        "archive": _ARCHIVES[target.system],
    }
    recipes = tuple(_recipe(target, {**entry, **recipe}, texts) for recipe in entry["recipes"])
    programs = entry.get("bin") or first.get("programs") or [first.get("program")]
    links = entry.get("links") or {f"bin/{program}": program for program in programs}
    has_binaries = any(isinstance(recipe, GoBuild | PipInstall) for recipe in recipes)
    return Tool(
        name=entry["name"],
        version=version,
        platform=texts["platform"] if has_binaries else "any",
        links={link.format_map(texts): file.format_map(texts) for link, file in links.items()},
        recipes=recipes,
        release=_release(entry["release"], texts) if "release" in entry else None,
        skipped=entry.get("skipped", "").format_map(texts),
    )


def _version(target: InstallTarget, entry: Mapping[str, Any]) -> str:
    recipe = entry["recipes"][0]
    if recipe["kind"] == "debian":
        return "debian"
    if recipe["kind"] == "pip":
        return python_pin(target.requirements(recipe["folder"]), recipe["package"])
    if "package" in entry:
        return python_pin(target.checkout / "pyproject.toml", entry["package"])
    return target.module(entry["folder"]).version(entry["path"])


def _release(given: Mapping[str, Any], texts: Mapping[str, str]) -> Release:
    url = given["url"].format_map(texts)
    checksums = f"{url.rpartition('/')[0]}/{given['checksums'].format_map(texts)}"
    members = tuple(member.format_map(texts) for member in given.get("members", ()))
    return Release(url=url, checksums=checksums, members=members)


def _recipe(target: InstallTarget, given: Mapping[str, Any], texts: Mapping[str, str]) -> Recipe:
    match given["kind"]:
        case "pip":
            requirements, whole = target.requirements(given["folder"]), given.get("whole", False)
            return PipInstall(requirements=requirements, program=given["program"], whole=whole)
        case "debian":
            return DebianPackages(
                packages=tuple(given["packages"]),
                programs=given["programs"],
                dependencies=Dependencies(given.get("dependencies", "missing")),
                arguments=given.get("arguments", ""),
            )
        case "files":
            return _files(target, given)
        case _:
            return _build(target, given, texts)


def _files(target: InstallTarget, given: Mapping[str, Any]) -> ModuleFiles:
    return ModuleFiles(module=target.module(given["folder"]), path=given["path"], files=given["files"])


def _build(target: InstallTarget, given: Mapping[str, Any], texts: Mapping[str, str]) -> GoBuild:
    module, programs = target.module(given["folder"]), given["programs"]
    version = module.version(given["version_of"]) if "version_of" in given else texts["version"]
    major, minor, *_ = version.split(".")
    values = {**texts, "version": version, "major": major, "minor": minor}
    if isinstance(programs, list):
        programs = module.tools(*(program.format_map(texts) for program in programs))
    embeds, changed = given.get("embeds"), given.get("changed")
    return GoBuild(
        module=module,
        programs=programs,
        stamps={variable: value.format_map(values) for variable, value in given.get("stamps", {}).items()},
        tags=given.get("tags", ""),
        embeds=embeds and _files(target, {**given, **embeds}),
        changed=changed
        and ChangedModule(files=_files(target, {**given, **changed}), file=changed["file"], changes=changed["changes"]),
        cgo=given.get("cgo", False),
    )
