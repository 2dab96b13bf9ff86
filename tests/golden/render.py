"""Renders the Kubernetes objects of a stack as text. The diff of a commit therefore shows the
changes in the cluster.
"""

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
STACKS = {
    ROOT / "Pulumi.prod.yaml": FOLDER / "prod.objects.yaml",
    ROOT / "examples" / "template" / "gpus.yaml": FOLDER / "template.objects.yaml",
    EVERY: FOLDER / "every.objects.yaml",
    FOLDER / "installed-kueue.yaml": FOLDER / "installed-kueue.objects.yaml",
    FOLDER / "observe.yaml": FOLDER / "observe.objects.yaml",
}
# Every change of the agents changes these hashes and names.
_HASH = re.compile(r"\b[0-9a-f]{64}\b|(?<=-)[0-9a-f]{10}\b")


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, _: Any) -> bool:
        return True


def _represent_text(dumper: yaml.CSafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def objects(stack_file: Path) -> str:
    def program() -> None:
        given = stackfile.read(stack_file).values
        if stack_file == EVERY:
            add_examples(given)
        # With Kueue's chart, the chart's address would depend on the installed tools.
        outputs = platform.build(settings.parse(given), root=FOLDER)
        for name, value in vars(outputs).items():
            pulumi.export(name, value)

    graph = engine.build(program)
    documents = [*_resources(graph), {"outputs": graph.exports}]
    return yaml.dump_all(map(stable, documents), Dumper=_Dumper, width=120, explicit_start=True)


def add_examples(given: dict[str, Any]) -> None:
    stacks = [given, stackfile.read(FOLDER / "installed-kueue.yaml").values]
    schema = settings_schema()
    for setting in (each for part in schema["properties"] for each in settings_page.settings(part, schema)):
        *parents, name = setting.path.replace("[]", ".[]").split(".")
        if setting.example and not any(name in each for stack in stacks for each in _maps(stack, parents)):
            _first_map(given, parents)[name] = yaml.safe_load(setting.example)


def _first_map(value: Any, path: Sequence[str]) -> Any:
    for part in path:
        if part == "[]":
            value += [] if value else [{}]
            value = value[0]
        else:
            value = value.setdefault(next(iter(value), "example") if part == "NAME" else part, {})
    return value


def _maps(value: Any, path: Sequence[str]) -> Iterator[Any]:
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
            yield {**shown, "inputs": resource.inputs}
        else:
            yield shown


def stable(value: Any) -> Any:
    """Returns the value with each whole number as an integer, and with the hashes of the agents' source replaced."""
    if isinstance(value, Mapping):
        return {stable(key): "..." if key == "binaryData" else stable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [stable(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return _HASH.sub("HASH", value) if isinstance(value, str) else value
