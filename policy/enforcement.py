"""The enforcement level of each rule. Every rule is mandatory, unless the pack's configuration sets a lower level and
gives a reason.

`--policy-pack-config`: {"gpu-tenancy": {"rules": {"images": {"level": "advisory", "reason": "..."}}}}. If any entry of
the levels is wrong, every rule stays mandatory.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tenancy.decode import DecodeError, decode

RULES = "rules"
SCHEMA = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "properties": {"level": {"type": "string"}, "reason": {"type": "string"}},
    },
}


class Level(StrEnum):
    """The levels of Pulumi: a mandatory finding refuses the update, an advisory finding is printed, a disabled rule
    does not run."""

    MANDATORY = "mandatory"
    ADVISORY = "advisory"
    DISABLED = "disabled"


@dataclass(frozen=True)
class Enforcement:
    """Holds the level of a rule, and the reason why the rule is not mandatory."""

    level: Level
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.level}: {self.reason}"


MANDATORY = Enforcement(Level.MANDATORY)


@dataclass(frozen=True)
class _Configured:
    rules: Mapping[str, Enforcement]


def enforcement(configured: Mapping[str, object], ids: Collection[str]) -> dict[str, Enforcement]:
    """Returns the enforcement of each rule that is not mandatory, by its id. `configured` is the pack's configuration,
    and `ids` are the IDs of all rules. The function raises DecodeError with all problems."""
    if configured.get(RULES) is None:
        return {}
    given = decode(_Configured, {RULES: configured[RULES]}, "configuration").rules
    key = f"configuration.{RULES}"
    problems = [
        f"{key}.{name}: unknown rule; docs/reference/policy-rules.md has the list" for name in given if name not in ids
    ]
    turned_down = {name: each for name, each in given.items() if each.level is not Level.MANDATORY}
    unexplained = [name for name, each in turned_down.items() if not each.reason.strip()]
    problems += [f"{key}.{name}.reason: write why the rule is not mandatory" for name in unexplained]
    if problems:
        raise DecodeError(problems)
    return turned_down
