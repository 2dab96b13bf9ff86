"""Kills `up` of prod with more tenants at random moments, while Pulumi writes its state only at the end."""

import json
import random
import resource
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stacks.existing.leftovers import KINDS
from tenancy.names import PROJECT, STACK, stack_mark
from tests.support.e2e.interrupting import kill_at
from tests.support.e2e.rollout import GPUMEM, Object, Rollout, changes
from toolchain.cluster.api import ClusterApi

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
    expect_equal(json.loads(rollout.export().read_text()), rollout.cluster.api, stack_mark(PROJECT, "prod"))


def expect_equal(exported: Object, api: ClusterApi, mark: str) -> None:
    """The cluster has the objects of an exported state and no other, and each has one field manager of ours."""
    objects = [each for each in exported["deployment"].get("resources") or () if _is_object(each)]
    in_state = {(each["inputs"]["kind"], each["id"]): each["outputs"]["metadata"]["uid"] for each in objects}
    in_cluster, managers = {}, {}
    for kind, each in of_stack(api, mark):
        metadata = each["metadata"]
        key = kind, "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        in_cluster[key] = metadata["uid"]
        managers[key] = [entry["manager"] for entry in metadata["managedFields"] if _is_pulumis(entry)]
    differing = {*in_cluster.items()} ^ {*in_state.items()}
    assert not differing, f"differs: {sorted(differing)}"
    assert {key: found for key, found in managers.items() if len(found) != 1} == {}


def of_stack(api: ClusterApi, mark: str) -> Iterator[tuple[str, Object]]:
    """Yields the objects with this mark of a stack, and their kinds."""
    for version in filter(_is_final, KINDS):
        group = f"/apis/{version}" if "/" in version else f"/api/{version}"
        for served in (api.get(group) or {}).get("resources", ()):
            if served["kind"] in KINDS[version] and "/" not in served["name"]:
                for each in (api.get(f"{group}/{served['name']}") or {}).get("items", ()):
                    metadata = each["metadata"]
                    if metadata.get("annotations", {}).get(STACK) == mark and "ownerReferences" not in metadata:
                        yield served["kind"], each


def _is_pulumis(entry: Object) -> bool:
    return str(entry["manager"]).startswith((f"{PROJECT}/", "pulumi"))


def _is_object(resource: Object) -> bool:
    annotations = (resource.get("inputs") or {}).get("metadata", {}).get("annotations", {})
    return str(resource["type"]).startswith("kubernetes:") and STACK in annotations


def _is_final(api: str) -> bool:
    """The prereleases of admission's kinds name the same objects."""
    return api == "admissionregistration.k8s.io/v1" or not api.startswith("admissionregistration")
