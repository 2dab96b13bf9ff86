"""The interface to the API for reports: kubectl, or an account in the cluster."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

from agents.kube.client import Object
from agents.runtime.errors import AgentError


class Source(Protocol):
    """Reads the API. `now` is the time of the API server at its last response. Each method raises AgentError."""

    @property
    def now(self) -> datetime | None: ...
    def get(self, path: str) -> Object: ...
    def items(self, path: str, **parameters: str) -> Iterator[Object]: ...
    def ask(self, namespace: str, pod: str, port: int, path: str) -> bytes: ...


class ReadOnce:
    """Reads each object and each list at most once, also if its request failed. `known` has objects by their paths."""

    def __init__(self, source: Source, known: Mapping[str, Object]) -> None:
        self.now, self.ask, self._source = source.now, source.ask, source
        self._answers: dict[object, Any] = dict(known.items())

    def get(self, path: str) -> Object:
        found: Object = self._kept(path, lambda: self._source.get(path))
        return found

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        yield from self._kept((path, *parameters.items()), lambda: [*self._source.items(path, **parameters)])

    def _kept(self, key: object, read: Callable[[], Any]) -> Any:
        if key not in self._answers:
            try:
                self._answers[key] = read()
            except AgentError as error:
                self._answers[key] = error
        if isinstance(answer := self._answers[key], AgentError):
            raise answer
        return answer
