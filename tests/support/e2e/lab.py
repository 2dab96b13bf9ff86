"""Runs an operator's commands on a stack, and reads the objects of its cluster."""

import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.e2e.rollout import await_schemas
from tests.support.workspace import Outcome, Workspace
from toolchain.cluster.cluster import HeldCluster

NAMESPACES, CLASSES = "/api/v1/namespaces", "/apis/scheduling.k8s.io/v1/priorityclasses"


@dataclass(frozen=True)
class Lab:
    cluster: HeldCluster
    space: Workspace
    stack: str = "lab"
    config: str = "{}"

    def write(self, change: Callable[[dict[str, Any]], object] = lambda _: None, name: str | None = None) -> None:
        config = yaml.safe_load(self.config)
        change(config)
        path = self.stack_file(name)
        salt = [line for line in path.read_text().splitlines() if "encryptionsalt" in line] if path.exists() else []
        stack_file = yaml.safe_dump({"config": {f"gpu-tenancy:{key}": part for key, part in config.items()}})
        path.write_text(stack_file + "".join(f"{line}\n" for line in salt))

    def stack_file(self, name: str | None = None) -> Path:
        return self.space.project / f"Pulumi.{name or self.stack}.yaml"

    def command(self, name: str, stack: str | None = None) -> list[str]:
        answered = () if name == "preview" else ("--yes",)
        return [sys.executable, "-m", "stacks", name, "--stack", stack or self.stack, *answered]

    @property
    def kubeconfig(self) -> Mapping[str, str]:
        return {"KUBECONFIG": str(self.cluster.kubeconfig)}

    @property
    def environment(self) -> Mapping[str, str]:
        return {**self.space.env, **self.kubeconfig}

    def run(self, name: str, stack: str | None = None) -> Outcome:
        return self._timed(*self.command(name, stack))

    def succeed(self, name: str) -> str:
        outcome = self.run(name)
        assert outcome.code == 0, outcome.text
        return outcome.text

    def destroy(self) -> str:
        """Removes the stack, and the namespaces that `destroy` names because they are empty then."""
        said = self.succeed("destroy")
        named = re.search(r"if nobody needs them: kubectl delete namespace (.+)", said)
        for name in named[1].split() if named else ():
            self.cluster.api.request("DELETE", f"{NAMESPACES}/{name}")
        return said

    def gpumem(self, *arguments: str) -> Outcome:
        return self._timed(sys.executable, "-m", "gpumem", *arguments)

    def preflight(self) -> Outcome:
        return self._timed(sys.executable, "-m", "gpumem.preflight", "--stack", self.stack, "-o", "json")

    def _timed(self, *command: str) -> Outcome:
        await_schemas(self.cluster.api)
        began = time.monotonic()
        outcome = self.space.run(*command, cwd=self.space.project, **self.kubeconfig)
        print(f"{' '.join(command[2:])}: {time.monotonic() - began:.1f} s")
        return outcome

    def resources(self) -> int:
        return len(self.space.state(self.stack).get("resources") or ())

    def found(self, path: str) -> Mapping[str, Any]:
        found = self.cluster.api.get(path)
        assert found is not None, path
        return found

    def items(self, path: str) -> list[Mapping[str, Any]]:
        return list(self.found(path)["items"])

    def versions(self) -> set[tuple[str, str]]:
        lists = [self.items(path) for path in (NAMESPACES, CLASSES)]
        return {(each["metadata"]["uid"], each["metadata"]["resourceVersion"]) for found in lists for each in found}
