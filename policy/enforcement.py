"""How hard each rule binds: all are mandatory, but for those that the pack's configuration turns down, with a reason.

`--policy-pack-config`: {"gpu-tenancy": {"rules": {"images": {"level": "advisory", "reason": "..."}}}}. Whatever is
wrong with it turns nothing down.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

RULES = "rules"
SCHEMA = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "properties": {"level": {"type": "string"}, "reason": {"type": "string"}},
    },
}
_SHOWN = 100  # characters of a value


class Level(StrEnum):
    """As Pulumi names them: refuses, is printed, is not judged."""

    MANDATORY = "mandatory"
    ADVISORY = "advisory"
    DISABLED = "disabled"


@dataclass(frozen=True)
class Enforcement:
    """The level of a rule, and why it is not mandatory."""

    level: Level
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.level}: {self.reason}"


MANDATORY = Enforcement(Level.MANDATORY)


class EnforcementError(Exception):
    """What is wrong, each with its key and what to change."""

    def __init__(self, problems: Collection[str]) -> None:
        super().__init__(*problems)


def enforcement(configured: Mapping[str, object], ids: Collection[str]) -> dict[str, Enforcement]:
    """By the id of each rule that is not mandatory. `configured` is the pack's configuration, `ids` are of all rules.
    Raises EnforcementError with all that is wrong."""
    given = configured.get(RULES)
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise EnforcementError([f"{RULES}: must be a map of rules (got {_text(given)})"])
    problems = [problem for name in given for problem in _problems(str(name), given[name], ids)]
    if problems:
        raise EnforcementError(problems)
    read = {str(name): Enforcement(Level(each["level"]), each.get("reason", "")) for name, each in given.items()}
    return {name: each for name, each in read.items() if each.level is not Level.MANDATORY}


def _problems(name: str, given: object, ids: Collection[str]) -> Iterator[str]:
    key = f"{RULES}.{name[:_SHOWN]}"
    if name not in ids:
        near = get_close_matches(name, ids, n=1)
        yield f"{key}: there is no such rule{f'; did you mean {near[0]}?' if near else ': docs/gate.md lists them'}"
    if not isinstance(given, Mapping):
        yield f"{key}: must be a map with level and reason (got {_text(given)})"
        return
    for other in sorted(str(field) for field in given if field not in ("level", "reason")):
        yield f"{key}.{other[:_SHOWN]}: there is no such key; level and reason are"
    level, reason = given.get("level"), given.get("reason", "")
    if level not in [*Level]:
        yield f"{key}.level: must be one of {', '.join(Level)} (got {_text(level)})"
    if not isinstance(reason, str) or not (reason.strip() or level == Level.MANDATORY):
        yield f"{key}.reason: say why the rule is not mandatory; it is printed with every verdict (got {_text(reason)})"


def _text(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
