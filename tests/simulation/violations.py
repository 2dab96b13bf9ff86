"""Collects violations, the durations of bad states, and the times in which promises do not count."""

from dataclasses import dataclass

from tests.simulation.model.world import World

WARM_SECONDS = 300.0


@dataclass(frozen=True)
class Violation:
    name: str
    at: float
    text: str


class Violations:
    def __init__(self, world: World) -> None:
        self.world = world
        self.found: list[Violation] = []
        # Maps each node or device to the end of its fault. The key "" means all nodes and devices.
        self.disturbed: dict[str, float] = {"": WARM_SECONDS}
        self.blocked: dict[str, float] = {}  # Maps each workload to the end of the fault that refuses its evictions.
        self.hidden: dict[str, float] = {}  # Maps each namespace to the end of the fault that refuses all its requests.
        self._since: dict[tuple[str, str], float] = {}
        self._reported: set[tuple[str, str]] = set()

    def add(self, name: str, text: str, key: str = "") -> None:
        if (name, key or text) in self._reported:
            return
        self._reported.add((name, key or text))
        self.found.append(Violation(name, self.world.now, text))
        self.world.say("VIOLATION", f"{name}: {text}")
        self.world.see(f"violation: {name}")

    def disturb(self, where: str, seconds: float, after: float = 100.0) -> None:
        until = self.world.now + seconds + after
        self.disturbed[where] = max(self.disturbed.get(where, 0.0), until)
        self.world.at(until + 1.0, self.world.stir)

    def block(self, workload: str, seconds: float) -> None:
        self.blocked[workload] = max(self.blocked.get(workload, 0.0), self.world.now + seconds + 60.0)

    def up(self, *where: str) -> bool:
        return self.world.now >= max(self.disturbed.get(each, 0.0) for each in ("", *where))

    def is_hidden(self, namespace: str) -> bool:
        return self.world.now < self.hidden.get(namespace, 0.0)

    def held(self, name: str, key: str, bad: bool, most: float, text: str) -> None:
        if not bad:
            self._since.pop((name, key), None)
            return
        since = self._since.setdefault((name, key), self.world.now)
        if self.world.now - since > most:
            self.add(name, f"{text}, for {self.world.now - since:.0f} s", key)

    def forget(self, name: str, kept: set[str]) -> None:
        for each in [key for key in self._since if key[0] == name and key[1] not in kept]:
            del self._since[each]

    def skip(self, seconds: float) -> None:
        self._since = {key: since + seconds for key, since in self._since.items()}

    def counting(self) -> bool:
        return any(key not in self._reported for key in self._since)
