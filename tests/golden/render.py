"""Renders the objects that a stack declares as text. So the diff of a change shows its effect on the cluster."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi
import yaml

from stacks import platform, settings, settings_page, stackfile
from stacks.schema import settings_schema
from tests.support import engine
from tests.support.paths import ROOT

FOLDER = Path(__file__).resolve().parent
EVERY = FOLDER / "every.yaml"
# Maps each stack file to the file that holds its objects.
STACKS = {
    ROOT / "Pulumi.prod.yaml": FOLDER / "prod.objects.yaml",
    ROOT / "examples" / "template" / "gpus.yaml": FOLDER / "template.objects.yaml",
    EVERY: FOLDER / "every.objects.yaml",
    FOLDER / "claims.yaml": FOLDER / "claims.objects.yaml",
    FOLDER / "observe.yaml": FOLDER / "observe.objects.yaml",
}
# Hashes of the agents' source, and names with such hashes. These hashes and names change with every change of the
# agents.
_HASH = re.compile(r"\b[0-9a-f]{64}\b|(?<=-)[0-9a-f]{10}\b")


class _Dumper(yaml.CSafeDumper):
    """A YAML dumper that writes a text of several lines as a block, and repeats a value instead of writing an alias."""

    def ignore_aliases(self, _: Any) -> bool:
        return True


def _represent_text(dumper: yaml.CSafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def objects(stack_file: Path) -> str:
    """Returns one YAML document per resource, sorted by kind and name, and one document with the stack's outputs.

    For a component, the document contains only its parent. `retain: true` means that `destroy` leaves the object in the
    cluster. The agents' code and its hash are left out. Raises ConfigError if the settings refuse the file.
    """

    def program() -> None:
        given = stackfile.read_either(stack_file).values
        if stack_file == EVERY:
            add_examples(given)
        # The folder FOLDER contains no chart of Kueue. Otherwise, the chart's address would depend on the installed
        # tools.
        outputs = platform.build(settings.from_mapping(given, stack_file.parent), root=FOLDER)
        for name, value in vars(outputs).items():
            pulumi.export(name, value)

    graph = engine.build(program)
    documents = [*_resources(graph), {"outputs": graph.exports}]
    return yaml.dump_all(map(_stable, documents), Dumper=_Dumper, width=120, explicit_start=True)


def add_examples(given: dict[str, Any]) -> None:
    """Adds the example value of each setting that the golden stacks do not use. The value goes into the first map that
    may have the setting."""
    stacks = [given, *(stackfile.read_either(FOLDER / name).values for name in ("tenants.yaml", "claims.yaml"))]
    schema = settings_schema()
    for setting in (each for part in schema["properties"] for each in settings_page.settings(part, schema)):
        *parents, name = setting.path.replace("[]", ".[]").split(".")
        if not any(name in each for stack in stacks for each in _maps(stack, parents)):
            _first_map(given, parents)[name] = yaml.safe_load(setting.example)


def _first_map(value: Any, path: Sequence[str]) -> Any:
    """Returns the first map at a path. Makes the map if it is missing."""
    for part in path:
        if part == "[]":
            value += [] if value else [{}]
            value = value[0]
        else:
            value = value.setdefault(next(iter(value), "example") if part == "NAME" else part, {})
    return value


def _maps(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """Returns the maps at a path. NAME stands for any key, and [] for any item."""
    if not path:
        yield value
    elif path[0] in ("NAME", "[]"):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _maps(each, path[1:])
    elif path[0] in value:
        yield from _maps(value[path[0]], path[1:])


def _resources(graph: engine.Graph) -> Iterator[Mapping[str, Any]]:
    for resource in sorted(graph.resources, key=lambda each: (each.type, each.name)):
        parent = graph.parent(resource)
        shown = {"name": resource.name, "type": resource.type, "parent": parent.name if parent else "(stack)"}
        if resource.custom:
            retained = {"retain": True} if resource.request.retainOnDelete else {}
            yield {**shown, **retained, "inputs": resource.inputs}
        else:
            yield shown


def _stable(value: Any) -> Any:
    """Returns the value with whole numbers as integers. Hashes of the agents' source are replaced."""
    if isinstance(value, Mapping):
        return {_stable(key): "..." if key == "binaryData" else _stable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_stable(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return _HASH.sub("HASH", value) if isinstance(value, str) else value
