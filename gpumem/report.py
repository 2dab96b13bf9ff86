"""What a verb found: for people, for programs, and the exit code."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpumem.draw import Paper

DONE, FAILED, USAGE, WAITS = 0, 1, 2, 3


@dataclass(frozen=True)
class Report:
    """`text` is for people, `found` for programs under its `kind`; `csv` where there is one."""

    text: "Callable[[Paper], str]"
    kind: str
    found: Any
    code: int = DONE
    csv: Callable[[], str] | None = None
