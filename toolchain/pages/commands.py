"""Generates docs/reference/commands.md: the commands and options of `python -m stacks` and `kubectl gpumem`."""

import argparse
import re
from collections.abc import Iterator
from typing import Any

from gpumem import arguments
from stacks import __main__ as stacks
from toolchain.pages.markdown import MADE, row, table

_HEAD = f"""# Commands

{MADE}

`make` has a target for each command of `python -m stacks`, and `make help` lists all targets.
[kubectl gpumem](gpumem.md) describes the reports of the plugin.
"""


class _Recorded(argparse.ArgumentParser):
    """A parser that records its arguments and its commands."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        self.listed: list[argparse.Action] = []
        self.commands: dict[str, _Recorded] = {}
        super().__init__(*args, **keywords)

    def add_argument(self, *names: Any, **keywords: Any) -> argparse.Action:
        self.listed.append(super().add_argument(*names, **keywords))
        return self.listed[-1]

    def add_subparsers(self, **keywords: Any) -> Any:
        made = super().add_subparsers(**keywords)
        self.commands = made.choices
        return made


def page() -> str:
    """Returns the text of the page of commands."""
    parts = [_HEAD]
    for parser in (stacks.parser(_Recorded), arguments.parser(_Recorded)):
        if not isinstance(parser, _Recorded):
            raise TypeError(f"{parser.prog} is not of the recorded kind")
        parts += [f"## {parser.prog}\n", f"{parser.description}\n"]
        for name, command in parser.commands.items():
            parts += [f"### {parser.prog} {name}\n", *_command(command)]
        parts += [f"```text\n{parser.epilog}\n```\n"]
    return "\n".join(parts).rstrip() + "\n"


def _command(command: _Recorded) -> Iterator[str]:
    yield f"{_sentence(command.description)}\n"
    rows = [_option(each) for each in command.listed if each.dest != "help"]
    if rows:
        yield table(("argument", "value", "default", "meaning"), rows)
    examples = (command.epilog or "").partition("\n\n")[0].partition("examples:\n")[2]
    if examples:
        shown = "\n".join(line.removeprefix("  ") for line in examples.rstrip().splitlines())
        yield f"```sh\n{shown}\n```\n"


def _option(action: argparse.Action) -> str:
    name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    takes_value = bool(action.option_strings) and action.nargs != 0
    value = str(action.metavar or action.dest.upper()) if takes_value else ""
    if action.choices:
        value = " or ".join(map(str, action.choices))
    default = "required" if action.option_strings and action.required else ""
    meaning = action.help or ""
    if action.default not in (None, False, [], argparse.SUPPRESS):
        default, meaning = f"`{action.default}`", re.sub(r"(; )?default: .*", "", meaning)
    return row(f"`{name}`", f"`{value}`" if value else "", default, meaning)


def _sentence(text: str | None) -> str:
    words = " ".join((text or "").split())
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"
