"""Kills runs of `up` and `destroy` at random times."""

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass

from stacks import platform, settings
from tests.support.e2e.interrupting import kill_at
from tests.support.e2e.lab import Lab
from tests.support.engine import build

# A command is killed after a random fraction of its work, between _EARLIEST and _LATEST.
_EARLIEST, _LATEST = 0.05, 0.9


@dataclass(frozen=True)
class InterruptedStack:
    lab: Lab
    moments: random.Random

    @classmethod
    def seeded(cls, lab: Lab, seed: int) -> "InterruptedStack":
        return cls(lab, random.Random(seed))  # noqa: S311 (moments, not secrets)

    def kill(self, command: str) -> str:
        before, part = self.lab.resources(), self.moments.uniform(_EARLIEST, _LATEST)
        if command == "up":
            least = before + round(part * max(self._wanted() - before, 1))
            code = self._kill(command, lambda: self.lab.resources() >= least)
        else:
            most = before - round(part * before)
            code = self._kill(command, lambda: self.lab.resources() <= most)
        how = "was killed" if code == -signal.SIGKILL else f"ended by itself with {code}"
        after = self.lab.resources()
        self.lab.space.pulumi("cancel", "--yes", "--stack", self.lab.stack, cwd=self.lab.space.project)
        return f"{command} {how} between {before} and {after} resources"

    def destroyed_after_kills(self) -> list[str]:
        kills = [self.kill("up") for _ in range(self.moments.randint(1, 3))]
        if self.moments.random() < 1 / 2:
            kills.append(self.kill("destroy"))
        self.lab.destroy()
        return kills

    def _wanted(self) -> int:
        declared = settings.load_file(self.lab.stack_file())
        return len(build(lambda: platform.build(declared)).resources)

    def _kill(self, command: str, is_due: Callable[[], bool]) -> int:
        space = self.lab.space
        engine, log = space.engine(command, self.lab.stack), space.folder / f"killed-{command}.log"
        return kill_at(is_due, engine, cwd=space.project, env=self.lab.environment, log=log)
