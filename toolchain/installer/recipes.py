"""Makes a tool from its pins: builds with Go, takes files out of Go modules, installs a wheel."""

import os
import shutil
import sys
from pathlib import Path

from toolchain.installer.console import Runner
from toolchain.installer.modules import copy_files
from toolchain.installer.tool import GoBuild, ModuleFiles, PipInstall, Recipe

NO_DEBUG = "all=-dwarf=false"  # the linker strips it anyway
FEW_CORES = 4


def follow(recipe: Recipe, into: Path, runner: Runner) -> None:
    match recipe:
        case GoBuild():
            _go_build(recipe, into, runner)
        case ModuleFiles():
            copy_files(recipe, into, runner.console)
        case PipInstall():
            _pip_install(recipe, into, runner)


def _go_build(recipe: GoBuild, into: Path, runner: Runner) -> None:
    if recipe.embeds is None:
        _compile(recipe, recipe.module.folder, into, runner)
        return
    source = into / "source"
    source.mkdir()
    for file in recipe.module.sources(recipe.package):
        shutil.copy(file, source)
    copy_files(recipe.embeds, source, runner.console)
    _compile(recipe, source, into, runner)
    shutil.rmtree(source)


def _compile(recipe: GoBuild, folder: Path, into: Path, runner: Runner) -> None:
    cores = os.cpu_count() or 1
    linked = " ".join(f"-X {variable}={value}" for variable, value in recipe.stamps.items())
    if recipe.cgo:
        linked += " -extldflags=-Wl,-z,lazy"
    runner.run(
        f"go build {recipe.output}",
        [
            "go", "build", "-trimpath", "-mod=readonly", "-buildvcs=false", f"-tags={recipe.tags}",
            f"-gcflags={NO_DEBUG}", f"-ldflags=-s -w {linked}", f"-p={cores}", "-o", str(into / recipe.output),
            recipe.package,
        ],
        cwd=folder,
        # no go.work above changes the pins
        env={**os.environ, "CGO_ENABLED": str(int(recipe.cgo)), "GOWORK": "off", **_frugal(cores)},
    )  # fmt: skip


def _frugal(cores: int) -> dict[str, str]:
    """Go settings that save a third of the compilers' CPU time and change nothing of what they write."""
    frugal = {"GOGC": "400"}  # most of a compiler's memory lives until it ends
    if cores <= FEW_CORES:
        frugal["GOMAXPROCS"] = "1"  # packages side by side keep few cores busy; threads within one only add to it
    return {name: value for name, value in frugal.items() if name not in os.environ}


def _pip_install(recipe: PipInstall, into: Path, runner: Runner) -> None:
    venv = into / "venv"  # only to have a pip: many systems forbid their own, and have none in the system's Python
    runner.run(f"python -m venv, for {recipe.program}", [sys.executable, "-m", "venv", str(venv)])
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--require-hashes", "-r", str(recipe.requirements)]
    runner.run(f"pip install {recipe.program}", command)
    (venv / "bin" / recipe.program).rename(into / recipe.program)
    shutil.rmtree(venv)
