"""Kills `up` of prod with more tenants at random moments, while Pulumi writes its state only at the end."""

import json
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.e2e.interrupting import kill_at
from tests.support.e2e.rollout import GPUMEM, Rollout, changes
from toolchain.cluster.paths import TOOLCHAIN

_LEAST_MIB = 1001  # The budget of the first rollout. Each further rollout has 1 MiB more.
_FLOOR_MIB = 1360  # The floor that a full device leaves free.
_STACK_OF = "gpu-tenancy/stack"


def enlarge(config: dict[str, Any], tenants: int, mib: int) -> None:
    """Adds tenants with one seat each, and the declared nodes for these seats."""
    config["pools"]["t4"]["nodes"] += tenants
    config["pools"]["t4"]["floor_mib"] = _FLOOR_MIB
    for number in range(tenants):
        name = f"t{number}"  # Short names, because 1,000 tenants must fit into a stack file.
        config["tenants"][name] = {"delete": True}
        config["residents"][f"{name}-seat"] = {"tenant": name, "pool": "t4", "gpumem_mib": mib, "replicas": 1}


@dataclass
class KilledRollouts:
    """`tenants` is the number of tenants next to those of prod."""

    rollout: Rollout
    tenants: int
    moments: random.Random

    def kill(self, number: int) -> str:
        """Kills a run of `up`, and recovers the stack."""
        return f"{self.interrupt(number)}\n{self.rollout.recover()}"

    def interrupt(self, number: int) -> str:
        """Starts `up` with new budgets, and kills it after a random part of the new quotas."""
        mib = _LEAST_MIB + number
        self.declare(mib)
        least = self.moments.uniform(0, 1) * self.tenants
        command = (sys.executable, "-m", "stacks", "up", "--stack", "prod", "--yes")
        environment = {**self.rollout.workspace.env, "KUBECONFIG": str(self.rollout.cluster.kubeconfig)}
        log = self.rollout.workspace.folder / "killed-up.log"
        self.rollout.rolled_out = None
        code = kill_at(
            lambda: self._quotas(mib) >= least, command, cwd=self.rollout.workspace.project, env=environment, log=log
        )
        assert code in (0, -signal.SIGKILL), log.read_text()
        return f"up killed after {self._quotas(mib)} of {self.tenants} quotas" if code else "up ended by itself"

    def _quotas(self, mib: int) -> int:
        found = self.rollout.items("/api/v1/resourcequotas?limit=5000")
        return sum(each["spec"]["hard"].get(f"requests.{GPUMEM}") == str(mib) for each in found)

    def declare(self, mib: int = _LEAST_MIB) -> None:
        self.rollout.workspace.reset()
        self.rollout.workspace.change(lambda config: enlarge(config, self.tenants, mib))

    def complete(self) -> str:
        """Ends the rollout, and returns its cost. Then the state, the program and the cluster have the same objects."""
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        outcome = self.rollout.command("up")
        assert outcome.code == 0, outcome.text
        after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
        cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.rollout.expect_no_changes()
        drift = self.rollout.drift()
        assert drift.code == 0, drift.text
        assert changes(drift).keys() <= {"unchanged"}
        in_cluster, in_state = set(self._in_cluster()), set(self._in_state())
        assert in_cluster == in_state, {"not in the state": in_cluster - in_state, "lost": in_state - in_cluster}
        return f"up took {seconds:.0f} s and {cpu_seconds:.0f} s of CPU"

    def _in_state(self) -> Iterator[tuple[str, str]]:
        for each in self._resources():
            if _is_object(each):
                yield each["inputs"]["kind"], each["id"]

    def _resources(self) -> list[dict[str, Any]]:
        resources: list[dict[str, Any]] = json.loads(self.rollout.export().read_text())["deployment"]["resources"]
        return resources

    def _in_cluster(self) -> Iterator[tuple[str, str]]:
        kinds = {each["type"] for each in self._resources() if _is_object(each)}
        kubectl = (TOOLCHAIN / "bin" / "kubectl", f"--kubeconfig={self.rollout.cluster.kubeconfig}")
        command = [*kubectl, "get", ",".join(map(_resource, sorted(kinds))), "--all-namespaces", "--output=json"]
        for each in json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["items"]:
            metadata = each["metadata"]
            if _STACK_OF in metadata.get("annotations", {}) and "ownerReferences" not in metadata:
                yield each["kind"], "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


def _is_object(resource: dict[str, Any]) -> bool:
    annotations = (resource.get("inputs") or {}).get("metadata", {}).get("annotations", {})
    return str(resource["type"]).startswith("kubernetes:") and _STACK_OF in annotations


def _resource(token: str) -> str:
    """Returns a Pulumi type as kubectl names it: kubernetes:apps/v1:Deployment is Deployment.v1.apps."""
    _, version, kind = token.split(":")
    group, _, version = version.rpartition("/")
    return f"{kind}.{version}.{'' if group == 'core' else group}"
