"""Returns prod's configuration as plain data, for tests that change it."""

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
    """Returns a copy of prod's configuration, which a test may change."""
    config: Raw = pickle.loads(_pickled())  # noqa: S301 (our own)
    return config


@cache
def _pickled() -> bytes:
    return pickle.dumps(stackfile.read(PROD).values)


def put(path: str, value: object) -> Change:
    """Returns a change that sets a key. `path` has the parent keys and the key, separated by spaces."""

    def change(config: Raw) -> None:
        *parents, last = path.split()
        for part in parents:
            config = config[part]
        config[last] = value

    return change


def as_the_engine(values: Raw) -> dict[str, str]:
    """Returns the configuration in the form in which the engine passes it to the program.

    Each key has the project's name as its prefix, and each value is JSON text.
    """
    return {f"{PROJECT}:{name}": json.dumps(value) for name, value in values.items()}


def of_the_engine(monkeypatch: pytest.MonkeyPatch, config: dict[str, str], folder: Path) -> settings.StackSettings:
    """Returns the settings that a program reads in this folder from this configuration. The stack's name is `x`."""
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(config))
    monkeypatch.setattr("pulumi.get_stack", lambda: "x")
    monkeypatch.chdir(folder)
    return settings.load()


def drop(path: str) -> Change:
    """Returns a change that removes a key. `path` has the parent keys and the key, separated by spaces."""

    def change(config: Raw) -> None:
        *parents, last = path.split()
        for part in parents:
            config = config[part]
        del config[last]

    return change


def refusal(*changes: Change) -> list[str]:
    """Returns the error lines for prod's configuration after the changes.

    If the settings accept the configuration, returns an empty list.
    """
    config = raw()
    for change in changes:
        change(config)
    try:
        settings.parse(config)
    except settings.ConfigError as error:
        return str(error).splitlines()
    return []


def declared(config: Raw) -> Program:
    """Returns the Kubernetes objects that the program declares with this configuration, by their Pulumi names."""
    graph = engine.build(lambda: platform.build(settings.parse(config)))
    objects: Program = {}
    for resource in graph.resources:
        _, module, kind = resource.type.split(":") if resource.type.startswith("kubernetes:") else ("", "", "")
        if kind:
            objects[resource.name] = {**resource.inputs, "apiVersion": module.removeprefix("core/"), "kind": kind}
    return objects
