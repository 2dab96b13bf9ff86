"""Simulates an informer and watches without their threads. Lists and watch events happen as events in virtual time."""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from agents.kube.client import ApiError
from agents.kube.informer import Informer, WatchSource, backoff_seconds
from agents.runtime.errors import AgentError
from tests.simulation.model.api import KilledError, Object, Server, ServerWatch
from tests.simulation.model.world import World

# The delays of the events of one collection: from 0.02 to 0.22 s.
_LEAST_SECONDS, _STEP_SECONDS, _STEPS = 0.02, 0.01, 21


@dataclass(kw_only=True)
class SimInformer:
    """Replaces Informer.run: lists when necessary, and applies watch events."""

    informer: Informer
    world: World
    server: Server
    lost: bool = True
    ended: bool = False
    listing: bool = False
    failures: int = 0
    told_at: float = 0.0
    follows: list[ServerWatch] = field(default_factory=list)

    @property
    def stale(self) -> bool:
        return self.lost or self.informer.relist_wanted.is_set()

    def look(self) -> None:
        """Lists the objects again if a watch has ended or failed. The method raises AgentError and KilledError."""
        self.informer.alive_at = self.world.now
        broken = any(follow.ended for follow in self.follows)
        if self.ended or self.listing or not self.informer.ready() or not (self.stale or broken):
            return
        self.listing = True
        try:
            self._unfollow()
            self.lost = False
            self.informer.relist_wanted.clear()
            sources = self.informer.lists()
            self.informer.heard_at = self.world.now
            self.follows = [self.server.follow(source, self._hear) for source in sources]
            self.failures = 0
        except AgentError:
            self.lost = True
            self.failures += 1
            self.world.see("informer: relists")
            self.world.tick(backoff_seconds(self.failures, self.world.dice.random()), self._again)
        finally:
            self.listing = False

    def end(self) -> None:
        """Ends the informer, when the agent's process ends."""
        self.ended = True
        self._unfollow()

    def heard(self) -> None:
        """Records the time of a bookmark event. A real API server sends a bookmark each minute."""
        if self.follows and not self.stale and not self.server.down:
            self.informer.heard_at = self.world.now

    def _again(self) -> None:
        if self.stale:
            with suppress(KilledError):
                self.look()

    def _hear(self, event: Object) -> None:
        def deliver() -> None:
            if not self.ended and not self.stale:
                self.informer.heard_at = self.world.now
                try:
                    self.informer.apply(event)
                except (AgentError, KilledError):
                    self.lost = True

        # Each event of a watch has a random delay. The events of a watch keep their order.
        self.told_at = max(self.told_at, self.world.now + 0.02 + 0.2 * self.world.dice.random())
        self.world.at(self.told_at, deliver)

    def _unfollow(self) -> None:
        for follow in self.follows:
            follow.ended = True
        self.follows = []


@dataclass(kw_only=True)
class TakenWatches:
    """Replaces agents.kube.informer.Watches for an agent that takes the events at its passes.

    Each watch event has a delay that depends on its resourceVersion, and events keep their order.
    """

    world: World
    follows: list[ServerWatch] = field(default_factory=list)
    due: deque[tuple[float, Object]] = field(default_factory=deque)

    @classmethod
    def of(cls, server: Server, sources: Sequence[WatchSource]) -> "TakenWatches":
        """Opens the watches. A watch that cannot be opened counts as ended."""
        watches = cls(world=server.world)
        for source in sources:
            try:
                watches.follows.append(server.follow(source, watches._hear))
            except ApiError:
                watches.follows.append(ServerWatch(path=source.path, chosen=bool, tell=watches._hear, ended=True))
        return watches

    def take(self, seconds: float) -> list[Object]:
        """Returns the watch events until now, and does not wait. Raises AgentError after a watch has ended."""
        ended = next((follow.path for follow in self.follows if follow.ended), None)
        if ended is not None:
            raise AgentError(f"the watch of {ended} ended")
        events = []
        while self.due and self.due[0][0] <= self.world.now:
            events.append(self.due.popleft()[1])
        return events

    def close(self) -> None:
        for follow in self.follows:
            follow.ended = True
        self.follows = []

    def _hear(self, event: Object) -> None:
        steps = int(event["object"]["metadata"]["resourceVersion"]) * 7 % _STEPS
        last = self.due[-1][0] if self.due else 0.0
        self.due.append((max(last, self.world.now + _LEAST_SECONDS + _STEP_SECONDS * steps), event))
