"""Interrupts a stack at random moments: an `up` or a `destroy` is killed after a random part of its work."""

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass

from stacks import platform, settings
from tests.support.e2e.interrupting import kill_at
from tests.support.e2e.lab import Lab
from tests.support.engine import build

# A run is killed within this part of the resources that are still to be created or deleted.
_EARLIEST, _LATEST = 0.05, 0.9


@dataclass(frozen=True)
class InterruptedStack:
    """The stack of a lab, and the source of the random moments."""

    lab: Lab
    moments: random.Random

    @classmethod
    def seeded(cls, lab: Lab, seed: int) -> "InterruptedStack":
        return cls(lab, random.Random(seed))  # noqa: S311 (moments, not secrets)

    def resources(self) -> int:
        """Returns the number of resources in the state."""
        return len(self.lab.space.state(self.lab.stack).get("resources") or ())

    def kill(self, command: str) -> str:
        """Kills an `up` or a `destroy`, and puts the stack right. Returns a sentence about the moment."""
        before, part = self.resources(), self.moments.uniform(_EARLIEST, _LATEST)
        if command == "up":
            least = before + round(part * max(self._wanted() - before, 1))
            code = self._kill(command, lambda: self.resources() >= least)
        else:
            most = before - round(part * before)
            code = self._kill(command, lambda: self.resources() <= most)
        how = "was killed" if code == -signal.SIGKILL else f"ended by itself with {code}"
        after = self.resources()
        self.lab.succeed("recover")
        return f"{command} {how} between {before} and {after} resources"

    def destroyed_after_kills(self) -> list[str]:
        """Kills some runs at random, and destroys the stack. Returns a sentence for each run that was to be killed."""
        kills = [self.kill("up") for _ in range(self.moments.randint(1, 3))]
        if self.moments.random() < 1 / 2:
            kills.append(self.kill("destroy"))
        self.lab.succeed("destroy")
        return kills

    def _wanted(self) -> int:
        """Returns the number of resources that the stack file declares."""
        declared = settings.load_file(self.lab.stack_file())
        return len(build(lambda: platform.build(declared)).resources)

    def _kill(self, command: str, is_due: Callable[[], bool]) -> int:
        space = self.lab.space
        engine, log = space.engine(command, self.lab.stack), space.folder / f"killed-{command}.log"
        return kill_at(is_due, engine, cwd=space.project, env=self.lab.environment, log=log)
