"""Returns prod's configuration as plain data, which tests can change."""

import json
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stacks import platform, settings, stackfile
from tenancy.names import PROJECT
from tests.support import engine
from tests.support.graphs import Program
from tests.support.paths import ROOT

PROD = ROOT / "Pulumi.prod.yaml"

Raw = dict[str, Any]
Change = Callable[[Raw], object]


def raw() -> Raw:
    config: Raw = pickle.loads(_pickled())  # noqa: S301 (our own)
    return config


@cache
def _pickled() -> bytes:
    return pickle.dumps(stackfile.read(PROD).values)


def put(path: str, value: object) -> Change:
    def change(config: Raw) -> None:
        *parents, last = path.split()
        for part in parents:
            config = config[part]
        config[last] = value

    return change


def as_the_engine(values: Raw) -> dict[str, str]:
    return {f"{PROJECT}:{name}": json.dumps(value) for name, value in values.items()}


def of_the_engine(monkeypatch: pytest.MonkeyPatch, config: dict[str, str], folder: Path) -> settings.StackSettings:
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(config))
    monkeypatch.setattr("pulumi.get_stack", lambda: "x")
    monkeypatch.chdir(folder)
    return settings.load()


def drop(path: str) -> Change:
    def change(config: Raw) -> None:
        *parents, last = path.split()
        for part in parents:
            config = config[part]
        del config[last]

    return change


def refusal(*changes: Change) -> list[str]:
    config = raw()
    for change in changes:
        change(config)
    try:
        settings.parse(config)
    except settings.ConfigError as error:
        return str(error).splitlines()
    return []


def declared(config: Raw) -> Program:
    objects: Program = {}
    for resource, name, inputs in engine.inputs(lambda: platform.build(settings.parse(config))):
        _, module, kind = resource.split(":") if resource.startswith("kubernetes:") else ("", "", "")
        if kind:
            objects[name] = {**inputs, "apiVersion": module.removeprefix("core/"), "kind": kind}
    return objects
