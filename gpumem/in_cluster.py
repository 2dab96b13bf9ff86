"""Reads the API with the account of a pod, for reports in the cluster."""

import threading
from collections import ChainMap
from collections.abc import Iterator
from datetime import datetime

from agents.kube.client import Api, Object
from agents.kube.paths import ApiPath
from agents.runtime.http_client import get


class InCluster:
    """Reads the API with one connection, and connects to pods by their addresses. Several threads may use it."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._one = threading.Lock()
        # The addresses of the pods of each list, as it was last read. Pods that are gone are forgotten.
        self._addresses: dict[tuple[str, ...], dict[tuple[str, str], str]] = {}

    @property
    def now(self) -> datetime | None:
        return self._api.time

    def get(self, path: str) -> Object:
        with self._one:
            return self._api.get(ApiPath(path))

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        with self._one:
            found = [*self._api.items(ApiPath(path), **parameters)]
        self._addresses[path, *sorted(parameters.values())] = {
            (each["metadata"]["namespace"], each["metadata"]["name"]): address
            for each in found
            if (address := (each.get("status") or {}).get("podIP"))
        }
        yield from found

    def ask(self, namespace: str, pod: str, port: int, path: str) -> bytes:
        # Another thread may read a further list meanwhile, so this one looks at a copy.
        address = ChainMap(*[*self._addresses.values()])[namespace, pod]
        return get(f"http://{f'[{address}]' if ':' in address else address}:{port}{path}")
