"""The agents' real API client, without HTTP and JSON."""

import math
from pathlib import Path
from typing import Any, NoReturn

from agents.kube.client import ATTEMPTS, Api
from agents.kube.errors import ApiError
from agents.kube.transport import TIMEOUT_SECONDS, ApiRequest, Endpoint
from agents.runtime.clock import Clock
from tests.simulation.model.api import KilledError, Object, Server

_NOWHERE = Path("/nonexistent")


class NoTransport:
    """A transport for a client that must not send anything. Every request fails."""

    def send(self, request: ApiRequest) -> NoReturn:
        raise ConnectionError(str(request))

    open = send

    def close(self) -> None:
        pass


class SimApi(Api):
    """An API client with the agents' real retries and errors. The client's process is killed at its first request after
    `deadline`.
    """

    def __init__(
        self,
        server: Server,
        who: str,
        clock: Clock,
        timeout_seconds: float = TIMEOUT_SECONDS,
        attempts: int = ATTEMPTS,
        *,
        deadline: float = math.inf,
    ) -> None:
        endpoint = Endpoint(host="", port=0, token_file=_NOWHERE, ca_file=_NOWHERE)
        super().__init__(
            endpoint, clock=clock, jitter=server.world.dice.random, attempts=attempts, transport=NoTransport()
        )
        self._server, self._who, self._timeout_seconds = server, who, timeout_seconds
        self._deadline = deadline

    def exchange(self, method: str, path: str, body: Object | None, content_type: str, most_bytes: int) -> Any:
        if self._server.world.now > self._deadline:
            self._server.world.see("state: a run met its deadline")
            raise KilledError
        answered = True
        try:
            return self._server.exchange(self._who, method, path, body, self._timeout_seconds)
        except ApiError as error:
            answered = error.status is not None
            raise
        finally:
            if answered or not self._server.down:
                self.time = self._server.date()
