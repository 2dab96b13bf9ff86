"""Makes a tool from its pins: builds with Go, takes files out of Go modules, installs a wheel."""

import os
import shutil
import sys
from pathlib import Path

from toolchain.installer.console import Runner
from toolchain.installer.modules import copy_files
from toolchain.installer.tool import GoBuild, ModuleFiles, PipInstall, Recipe


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
    for file in recipe.module.sources():
        shutil.copy(file, source)
    copy_files(recipe.embeds, source, runner.console)
    _compile(recipe, source, into, runner)
    shutil.rmtree(source)


def _compile(recipe: GoBuild, folder: Path, into: Path, runner: Runner) -> None:
    stamps = " ".join(f"-X {variable}={value}" for variable, value in recipe.stamps.items())
    runner.run(
        f"go build {recipe.output}",
        [
            "go", "build", "-trimpath", "-mod=readonly", "-buildvcs=false", f"-tags={recipe.tags}",
            f"-ldflags=-s -w {stamps}", "-o", str(into / recipe.output), recipe.package,
        ],
        cwd=folder,
        env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"},  # no go.work above may change the pins
    )  # fmt: skip


def _pip_install(recipe: PipInstall, into: Path, runner: Runner) -> None:
    venv = into / "venv"  # only to have a pip: many systems forbid their own, and have none in the system's Python
    runner.run(f"python -m venv, for {recipe.program}", [sys.executable, "-m", "venv", str(venv)])
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--require-hashes", "-r", str(recipe.requirements)]
    runner.run(f"pip install {recipe.program}", command)
    (venv / "bin" / recipe.program).rename(into / recipe.program)
    shutil.rmtree(venv)
