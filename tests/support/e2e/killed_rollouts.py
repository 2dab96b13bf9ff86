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

from stacks.existing.leftovers import KINDS
from tenancy.names import PROJECT, STACK
from tests.support.e2e.interrupting import kill_at
from tests.support.e2e.rollout import GPUMEM, Rollout, changes
from toolchain.cluster.paths import TOOLCHAIN

_LEAST_MIB = 1001  # The budget of the first rollout. Each further rollout has 1 MiB more.
_FLOOR_MIB = 1360  # The floor that a full device leaves free.


def enlarge(config: dict[str, Any], tenants: int, mib: int) -> None:
    """Adds tenants with one seat each, and the declared nodes for these seats."""
    config["pools"]["t4"]["nodes"] += tenants
    config["pools"]["t4"]["floor_mib"] = _FLOOR_MIB
    for number in range(tenants):
        name = f"t{number}"  # Short names, because 1,000 tenants must fit into a stack file.
        config["tenants"][name] = {}
        config["residents"][f"{name}-seat"] = {"tenant": name, "pool": "t4", "gpumem_mib": mib, "replicas": 1}


@dataclass
class KilledRollouts:
    """`tenants` is the number of tenants next to those of prod."""

    rollout: Rollout
    tenants: int
    moments: random.Random

    def kill(self, number: int) -> str:
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
        expect_one_state(self.rollout)
        return f"up took {seconds:.0f} s and {cpu_seconds:.0f} s of CPU"


def expect_one_state(rollout: Rollout) -> None:
    """The state, the program and the cluster have the same objects, and each object has one field manager of ours."""
    rollout.expect_no_changes()
    drift = rollout.drift()
    assert drift.code == 0, drift.text
    assert changes(drift).keys() <= {"unchanged"}
    resources = json.loads(rollout.export().read_text())["deployment"]["resources"]
    in_state = {(each["inputs"]["kind"], each["id"]) for each in resources if _is_object(each)}
    in_cluster, managers = set(), {}
    for each in _in_cluster(rollout):
        metadata = each["metadata"]
        key = each["kind"], "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        in_cluster.add(key)
        managers[key] = [entry["manager"] for entry in metadata["managedFields"] if _is_pulumis(entry)]
    assert in_cluster == in_state, {"not in the state": in_cluster - in_state, "lost": in_state - in_cluster}
    assert {key: found for key, found in managers.items() if len(found) != 1} == {}


def _in_cluster(rollout: Rollout) -> Iterator[dict[str, Any]]:
    kinds = ",".join(
        f"{kind}.{_for_kubectl(api)}" for api, served in KINDS.items() for kind in served if _is_final(api)
    )
    kubectl = (TOOLCHAIN / "bin" / "kubectl", f"--kubeconfig={rollout.cluster.kubeconfig}")
    command = [*kubectl, "get", kinds, "--all-namespaces", "--output=json", "--show-managed-fields"]
    for each in json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["items"]:
        if STACK in each["metadata"].get("annotations", {}) and "ownerReferences" not in each["metadata"]:
            yield each


def _is_pulumis(entry: dict[str, Any]) -> bool:
    return str(entry["manager"]).startswith((f"{PROJECT}/", "pulumi"))


def _is_object(resource: dict[str, Any]) -> bool:
    annotations = (resource.get("inputs") or {}).get("metadata", {}).get("annotations", {})
    return str(resource["type"]).startswith("kubernetes:") and STACK in annotations


def _for_kubectl(api: str) -> str:
    """Returns a version and group as kubectl names them: apps/v1 is v1.apps."""
    group, _, version = api.rpartition("/")
    return f"{version}.{group}"


def _is_final(api: str) -> bool:
    """The prereleases of admission's kinds name the same objects."""
    return api == "admissionregistration.k8s.io/v1" or not api.startswith("admissionregistration")
