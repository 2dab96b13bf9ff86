"""Upgrades prod from the last release to this checkout, while residents and a Job run."""

import re
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tenancy import names
from tests.support.e2e.admitted import asks, container, pod
from tests.support.e2e.agents import run_once, succeeds
from tests.support.e2e.rollout import Rollout, await_running, deployment, job, jobs, pods, submit
from tests.support.e2e.scripted import quick
from tests.support.paths import ROOT
from tests.support.waiting import eventually

# Pulumi creates the new version of these objects first.
NAMED_BY_CONTENT = {
    "v1:ConfigMap scheduler-config",
    "v1:ConfigMap system-code",
    "v1:ConfigMap system-node-code",
    "v1:Job capacity-job",
}
# The watchdog no longer acts in the pool.
NO_LONGER_GIVEN = {"v1:Role watchdog-identity-inference-role", "v1:RoleBinding watchdog-identity-inference-binding"}
# One policy on queued work replaces the two policies on Jobs (adr/0036). The others are parts of another policy now.
REPLACED = {
    "ValidatingAdmissionPolicy": (
        *("admission-{}queued-jobs", "admission-{}queued-jobs-deletion", "admission-{}gpu-tenants"),
        "admission-{}mirror-pods",
        *("admission-{}gpu-count-use", "admission-{}whole-devices", "admission-{}counted-gpus"),
        *(
            "admission-{}priority-system",
            "admission-{}priority-use-gpu-workload",
            "admission-{}priority-use-tier-2-gpu",
        ),
        *("admission-{}priority-use-homelab-critical", "admission-{}priority-use-homelab-disposable"),
        *("memory-{}memory-classes-agents", "memory-{}memory-classes-inference", "memory-{}memory-classes-signoz"),
        *("admission-{}device-choice", "admission-{}queued-pods-kept", "admission-{}grace-deletion"),
    ),
    "MutatingAdmissionPolicy": (
        *("admission-{}device-hide", "admission-{}device-stamp-debug", "admission-{}place-queued-batch"),
        *("admission-{}place-seated-t4", "admission-{}place-seated-node-4"),
    ),
}
REPLACED_POLICIES = {
    f"v1:{kind}{what} {name.format('gpu-tenancy-')}{end}"
    for kind, names_of in REPLACED.items()
    for name in names_of
    for what, end in (("", ""), ("Binding", "-binding"))
}
# Pods that every version denies, and the namespace in which a tenant would create them.
ATTACKS = {
    "a GPU outside of the tenants": ("default", asks(gpu="1")),
    "a count without memory": ("llama-swap", asks(count="1")),
    "more whole devices than its memory is on": ("llama-swap", asks(mib="5000", gpu="2")),
    "a device that no quota counts": ("tts", pod(container(limits={"nvidia.com/mig-1g.5gb": "1"}))),
    "no budget": ("llama-swap", asks(gpu="1")),
    "another tenant's class": ("llama-swap", pod(priorityClassName="tier-2-gpu")),
    "a class of the system": ("llama-swap", pod(priorityClassName="system-node-critical")),
    "no class of the memory pool": ("agents", pod()),
}
# Without a pause, the attacks would take a core from the rollout that they attack.
BETWEEN_ATTACKS_SECONDS = 0.02
RESIDENTS = {"llama-swap": "5000", "frigate": "2000"}


@contextmanager
def attacked(stack: Rollout) -> Iterator[Counter[str]]:
    """Tries all attacks again and again. Counts the attacks that the API server admits, and all tries."""
    done, tried = threading.Event(), Counter[str]()

    def attack() -> None:
        while not done.is_set():
            for name, (namespace, attacker) in ATTACKS.items():
                path = f"{pods(namespace)}?dryRun=All"
                answer = stack.cluster.api.request("POST", path, attacker)
                tried["all"] += 1
                tried[name] += answer.refusal is None
                done.wait(BETWEEN_ATTACKS_SECONDS)

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(attack)
        try:
            yield tried
        finally:
            done.set()
            running.result()


@contextmanager
def of_the_release(stack: Rollout) -> Iterator[None]:
    program = stack.workspace.project / "__main__.py"
    program.unlink()
    program.write_text(f"import sys\n\nsys.path.append({str(ROOT)!r})\nimport tests.support.released.program\n")
    try:
        yield
    finally:
        program.unlink()
        program.symlink_to(ROOT / "__main__.py")


def no_namespace_would_go(stack: Rollout) -> bool:
    said = stack.preview_destroy().text
    return "core/v1:NamespacePatch immich-namespace delete" in said and "core/v1:Namespace " not in said


def run(stack: Rollout, resident: str, mib: str) -> None:
    stack.cluster.api.create(f"/apis/apps/v1/namespaces/{resident}/deployments", deployment(resident, mib))
    eventually(lambda: running(stack, resident), f"{resident} runs")


def running(stack: Rollout, namespace: str) -> set[str]:
    found = stack.items(pods(namespace))
    return {pod["metadata"]["uid"] for pod in found if pod["status"].get("phase") == "Running"}


def test_an_upgrade_from_the_last_release_restarts_no_running_pod(stack: Rollout) -> None:
    """The previous release owns its namespaces. The stack is that of the modules that follow on this cluster."""
    stack.workspace.reset()
    stack.workspace.change(quick)
    if stack.cluster.api.get("/api/v1/namespaces/gpu-tenancy-system") is not None:
        stack.destroy()
    with of_the_release(stack):
        stack.up()
    for resident, mib in RESIDENTS.items():
        run(stack, resident, mib)
    await_running(stack, "team-a", submit(stack, "team-a", job("through-it", "team-a-gpu")))
    before = {namespace: running(stack, namespace) for namespace in (*RESIDENTS, "team-a")}
    removals = len(stack.events("default", names.EVENT_REMOVED))

    with attacked(stack) as tried:
        outcome = stack.up()

    assert tried.pop("all") > 10 * len(ATTACKS)
    assert not +tried
    undone = set(re.findall(r"kubernetes:\S+/(\S+ \S+) (?:replaced|deleted)", outcome.text))
    assert undone <= NAMED_BY_CONTENT | NO_LONGER_GIVEN | REPLACED_POLICIES, outcome.text
    assert no_namespace_would_go(stack)
    assert {namespace: running(stack, namespace) for namespace in before} == before
    assert len(stack.events("default", names.EVENT_REMOVED)) == removals
    for agent in (names.RECONCILE, names.WATCHDOG, names.GATE):
        succeeds(stack, run_once(stack, agent))
    run(stack, "immich", "3000")

    for namespace in (*RESIDENTS, "immich"):
        stack.delete(f"/apis/apps/v1/namespaces/{namespace}/deployments/{namespace}")
    stack.delete(jobs("team-a", "through-it"))
    eventually(lambda: not any(running(stack, each) for each in (*before, "immich")), "what ran is gone")
