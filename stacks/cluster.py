"""Reads the cluster of a stack through kubectl, which authenticates as the operator."""

import http.client
import json
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agents.kube.errors import ApiError, Object
from agents.kube.kubectl import Kubectl
from agents.runtime.errors import AgentError
from stacks import stackfile
from stacks.engine import Engine, EngineError

_DELETION_SECONDS = 300
_LIST_TRIES = 30
_KUBECONFIG = "kubernetes:kubeconfig"
# Maps each key of the provider to kubectl's flag.
_FLAGS = {"kubernetes:context": "--context", "kubernetes:cluster": "--cluster"}


@dataclass(frozen=True)
class Cluster:
    """Sends requests to the API server through kubectl. Raises ApiError."""

    kubectl: Kubectl
    flags: Sequence[str]

    def find(self, path: str) -> Object | None:
        """Returns the object at the path, or None if there is no such object."""
        try:
            return self.kubectl.get(path)
        except ApiError as error:
            if error.status == http.client.NOT_FOUND:
                return None
            raise

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        """Yields the objects of a list. The list of a kind that the cluster does not know is empty.

        Just after a kind was created, the API server refuses its lists for some seconds.
        """
        for tries_left in reversed(range(_LIST_TRIES)):
            try:
                yield from [*self.kubectl.items(path, **parameters)]
            except ApiError as error:
                if error.status == http.client.TOO_MANY_REQUESTS and tries_left:
                    time.sleep(1)
                    continue
                if error.status != http.client.NOT_FOUND:
                    raise
            return

    def patch(self, *what: str, patch: Object) -> None:
        """Runs `kubectl patch` with a merge patch. Raises EngineError with kubectl's message."""
        self._kubectl("patch", *what, "--type=merge", f"--patch={json.dumps(patch)}")

    def delete(self, objects: Iterable[Object], *flags: str) -> None:
        """Deletes the objects that are there, and waits until they are gone. Raises EngineError."""
        listed = {"apiVersion": "v1", "kind": "List", "items": [*objects]}
        wait = ("--ignore-not-found", f"--timeout={_DELETION_SECONDS}s", *flags)
        self._kubectl("delete", "--filename=-", *wait, given=json.dumps(listed))

    def give_back(self, found: Object, manager: str) -> None:
        """Removes all fields that only this field manager has set. Raises EngineError."""
        self._kubectl("apply", "--server-side", f"--field-manager={manager}", "--filename=-", given=json.dumps(found))

    def _kubectl(self, *arguments: str, given: str = "") -> None:
        command = ["kubectl", *arguments, *self.flags]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EngineError(done.stderr.strip())


@contextmanager
def connect(engine: Engine) -> Iterator[Cluster]:
    """Opens a connection to the cluster that Pulumi would write to.

    Raises EngineError if the cluster cannot be read, also within the `with` block.
    """
    with tempfile.TemporaryDirectory(prefix="gpu-tenancy-") as folder:  # of mode 0700
        try:
            flags = _flags(engine, Path(folder))
            with Kubectl(flags) as kubectl:
                yield Cluster(kubectl, flags)
        except AgentError as error:
            raise EngineError(f"the cluster cannot be read, so nothing was changed: {error}") from None


def _flags(engine: Engine, folder: Path) -> list[str]:
    given = stackfile.read(engine.stack_file).foreign
    flags = [f"{flag}={given[name]}" for name, flag in _FLAGS.items() if given.get(name)]
    if _KUBECONFIG not in given:
        return flags
    text = given[_KUBECONFIG] or _decrypted(engine)
    if "\n" in text or not Path(text).is_file():
        path = folder / "kubeconfig"
        path.write_text(text, encoding="utf-8")
        text = str(path)
    return [*flags, f"--kubeconfig={text}"]


def _decrypted(engine: Engine) -> str:
    command = [str(engine.pulumi), "config", "get", _KUBECONFIG, "--stack", engine.stack]
    done = subprocess.run(command, cwd=engine.root, env=engine.environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EngineError((done.stderr + done.stdout).strip())
    return done.stdout.strip()
