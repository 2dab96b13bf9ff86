"""Collects the violations, the durations of bad states, and the times while promises are suspended."""

from dataclasses import dataclass

from simulation.world import World

WARM_SECONDS = 300.0


@dataclass(frozen=True)
class Violation:
    name: str
    at: float
    text: str


class Violations:
    """Collects violations. A bad state that lasts longer than its promise's time limit is a violation."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.found: list[Violation] = []
        self.disturbed: dict[str, float] = {"": WARM_SECONDS}  # Maps a node or device to a fault's end ("": all).
        self.blocked: dict[str, float] = {}  # Maps a workload to the end of a fault that refuses evictions.
        self.hidden: dict[str, float] = {}  # Maps a namespace to the end of a fault that refuses all requests.
        self._since: dict[tuple[str, str], float] = {}
        self._reported: set[tuple[str, str]] = set()

    def add(self, name: str, text: str, key: str = "") -> None:
        """Records a violation once for each key."""
        if (name, key or text) in self._reported:
            return
        self._reported.add((name, key or text))
        self.found.append(Violation(name, self.world.now, text))
        self.world.say("VIOLATION", f"{name}: {text}")
        self.world.see(f"violation: {name}")

    def disturb(self, where: str, seconds: float, after: float = 100.0) -> None:
        """Suspends the promises with a time limit on a node or device, for `seconds` and `after` more seconds."""
        until = self.world.now + seconds + after
        self.disturbed[where] = max(self.disturbed.get(where, 0.0), until)
        self.world.at(until + 1.0, self.world.stir)

    def block(self, workload: str, seconds: float) -> None:
        """Records that evictions of the workload's pods are refused for `seconds`."""
        self.blocked[workload] = max(self.blocked.get(workload, 0.0), self.world.now + seconds + 60.0)

    def up(self, *where: str) -> bool:
        """Returns True if no promise is suspended on these nodes (by name) and devices (by UUID)."""
        return self.world.now >= max(self.disturbed.get(each, 0.0) for each in ("", *where))

    def is_hidden(self, namespace: str) -> bool:
        return self.world.now < self.hidden.get(namespace, 0.0)

    def held(self, name: str, key: str, bad: bool, most: float, text: str) -> None:
        """Records a violation if a state has been bad for more than `most` seconds."""
        if not bad:
            self._since.pop((name, key), None)
            return
        since = self._since.setdefault((name, key), self.world.now)
        if self.world.now - since > most:
            self.add(name, f"{text}, for {self.world.now - since:.0f} s", key)

    def forget(self, name: str, kept: set[str]) -> None:
        """Ends the bad states of all keys that are not in `kept`."""
        for each in [key for key in self._since if key[0] == name and key[1] not in kept]:
            del self._since[each]

    def skip(self, seconds: float) -> None:
        """Subtracts `seconds` from the durations of bad states, because the agents made no passes during this time."""
        self._since = {key: since + seconds for key, since in self._since.items()}

    def counting(self) -> bool:
        return any(key not in self._reported for key in self._since)
