"""Collects the violations, how long each state has lasted, and the times without promises."""

from dataclasses import dataclass

from simulation.world import World

WARM_SECONDS = 300.0


@dataclass(frozen=True)
class Violation:
    name: str
    at: float
    text: str


class Violations:
    """Collects violations. A promise with a time limit is broken when something bad lasts longer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.found: list[Violation] = []
        self.disturbed: dict[str, float] = {"": WARM_SECONDS}  # by node or device, "" for all: its end
        self.blocked: dict[str, float] = {}  # by workload with pods that no eviction can end: the end of this time
        self.hidden: dict[str, float] = {}  # by namespace with objects that nobody can read: the end of this time
        self._since: dict[tuple[str, str], float] = {}
        self._reported: set[tuple[str, str]] = set()

    def add(self, name: str, text: str, key: str = "") -> None:
        """Reports a violation, once for each key."""
        if (name, key or text) in self._reported:
            return
        self._reported.add((name, key or text))
        self.found.append(Violation(name, self.world.now, text))
        self.world.say("VIOLATION", f"{name}: {text}")
        self.world.see(f"violation: {name}")

    def disturb(self, where: str, seconds: float, after: float = 100.0) -> None:
        """Suspends the promises with a time limit there, for this many seconds and `after` more."""
        until = self.world.now + seconds + after
        self.disturbed[where] = max(self.disturbed.get(where, 0.0), until)
        self.world.at(until + 1.0, self.world.stir)

    def block(self, workload: str, seconds: float) -> None:
        """Records that no eviction can end the workload's pods for this many seconds."""
        self.blocked[workload] = max(self.blocked.get(workload, 0.0), self.world.now + seconds + 60.0)

    def up(self, *where: str) -> bool:
        """Returns True if nothing is disturbed there: on a node, by its name, or on a device, by its UUID."""
        return self.world.now >= max(self.disturbed.get(each, 0.0) for each in ("", *where))

    def is_hidden(self, namespace: str) -> bool:
        return self.world.now < self.hidden.get(namespace, 0.0)

    def held(self, name: str, key: str, bad: bool, most: float, text: str) -> None:
        """Reports a violation if something is bad for longer than `most` seconds."""
        if not bad:
            self._since.pop((name, key), None)
            return
        since = self._since.setdefault((name, key), self.world.now)
        if self.world.now - since > most:
            self.add(name, f"{text}, for {self.world.now - since:.0f} s", key)

    def forget(self, name: str, kept: set[str]) -> None:
        """Stops counting for every key that is not in `keys`."""
        for each in [key for key in self._since if key[0] == name and key[1] not in kept]:
            del self._since[each]

    def skip(self, seconds: float) -> None:
        """Leaves out this many seconds, because the agents had no passes then."""
        self._since = {key: since + seconds for key, since in self._since.items()}

    def counting(self) -> bool:
        return any(key not in self._reported for key in self._since)
