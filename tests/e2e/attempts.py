"""Tries to break what no command may ever do, on real API servers (`make attempts`).

Each attempt is a sequence of steps on a small stack. After it, the last command runs again. Then people's objects are
as before, the state and the cluster are equal, and a preview finds no change.
"""

import argparse
import random
import re
import secrets
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tenancy import names
from tests.support.e2e.bucket import bucket
from tests.support.e2e.lab import NAMESPACES, Lab
from tests.support.e2e.trial import OURS, PROVIDER, PULUMI, SYSTEM, Config, Step, Trial
from tests.support.paths import ROOT
from tests.support.waiting import eventually
from tests.support.workspace import workspace
from toolchain.cluster import cluster, simulated
from toolchain.cluster.extent import Extent

BASE = """
cluster: {resource_domain: example.com, agent_image: "docker.io/library/python:3.13.9-slim-bookworm"}
pools: {gpu: {node_selector: {gpu: present}, nodes: 1, device_count: 1, memory_mib: 24564, reserve_mib: 1524}}
tenants: {immich: {}, scratch: {}, t0: {}, t1: {}, t2: {}, t3: {}}
priorities: {gpu-workload: {value: 1000000}, tier-2: {value: 600000}}
admission: {gpu_priority: gpu-workload}
"""
QUEUES = """
cluster: {resource_domain: example.com, agent_image: "docker.io/library/python:3.13.9-slim-bookworm"}
pools: {batch: {node_selector: {gpu: batch}, nodes: 1, device_count: 1, sharing: whole}}
tenants: {immich: {}, t0: {}}
priorities: {gpu-workload: {value: 1000000}}
admission: {gpu_priority: gpu-workload}
kueue: {version: 0.19.2}
queues:
  flavors: {any: {pool: batch}}
  cluster_queues: {cq: {quotas: {any: {nvidia.com/gpu: {nominal: 1}}}}}
  local_queues: {q0: {tenant: t0, cluster_queue: cq}}
"""
AGENTS = """
cluster: {resource_domain: example.com, agent_image: "docker.io/library/python:3.13.9-slim-bookworm"}
pools:
  t4:
    node_selector: {nvidia.com/gpu.present: "true", nvidia.com/gpu.sharing-strategy: time-slicing}
    nodes: 1
    device_count: 1
    memory_mib: 15360
    reserve_mib: 1360
tenants: {immich: {}, t0: {}}
residents: {ml: {tenant: immich, pool: t4, gpumem_mib: 4000}, small: {tenant: t0, pool: t4, gpumem_mib: 1000}}
reconcile: {}
"""
LEDGER = f"{NAMESPACES}/{SYSTEM}/configmaps/{names.LEDGER}"
RENDER = f"{sys.executable} -m stacks render --stack lab --out manifests"
_PAGE = (ROOT / "docs" / "howto" / "use-flux-or-argo.md").read_text()
(REMOVAL,) = re.findall(r"## Remove the objects\n.*?```sh\n(.*?)```", _PAGE, re.DOTALL)
DELETE_ALL = "kubectl delete --ignore-not-found -R -f manifests"
RIVAL = f"""kubectl create namespace rival
kubectl -n rival create quota gpumem-seats --hard=pods=9
kubectl -n rival label quota gpumem-seats {names.LABEL_PART_OF}={names.PROJECT}
kubectl -n rival annotate quota gpumem-seats {names.STACK}={names.PROJECT}/other"""
MINUTES_SECONDS = 150
MADE = "was made by this stack, which would delete it"

Change = Callable[[Config], object]
Moment = Callable[[Trial], Callable[[], object]]


@dataclass(frozen=True)
class Attempt:
    promise: str
    name: str
    steps: tuple[Step, ...]
    last: str = "up"

    @property
    def begins_anywhere(self) -> bool:
        return self.steps[0] is first


def run(command: str) -> Step:
    return lambda trial: trial.again(command)


def alone(command: str, *flags: str, fails: bool = False) -> Step:
    return lambda trial: trial.pulumi(command, *flags, fails=fails)


def refused(command: str, why: str) -> Step:
    return lambda trial: trial.refused(command, why)


def changed(change: Change | None = None) -> Step:
    return lambda trial: trial.configure(change)


def kill(command: str, moment: Moment, only: str = "", *, checkpoints: bool = False) -> Step:
    return lambda trial: trial.kill(command, moment, only, checkpoints=checkpoints)


def writes(least: int, most: int = 0) -> Moment:
    """The moment after some changes in the cluster."""

    def moment(trial: Trial) -> Callable[[], object]:
        before, count = trial.versions(), trial.moments.randint(least, most or least)
        return lambda: len(trial.versions() ^ before) >= count

    return moment


def after(seconds: float) -> Moment:
    def moment(_: Trial) -> Callable[[], object]:
        end = time.monotonic() + seconds
        return lambda: time.monotonic() > end

    return moment


def helm(status: str) -> Moment:
    path = f"/api/v1/secrets?labelSelector=owner%3Dhelm%2Cstatus%3D{status}"
    return lambda trial: lambda: trial.lab.items(path)


def ours_in_the_rollout(trial: Trial) -> Callable[[], object]:
    return lambda: (trial.api.get(f"/apis/batch/v1/namespaces/{SYSTEM}/jobs") or {"items": []})["items"]


def retiring(trial: Trial) -> Callable[[], object]:
    return lambda: "deletionTimestamp" in (trial.api.get(LEDGER) or {"metadata": {}})["metadata"]


def forget(trial: Trial) -> None:
    trial.pulumi("stack", "rm", "--force", "--preserve-config", "--yes")


def forget_resource(part: str) -> Step:
    def step(trial: Trial) -> None:
        (urn, *_) = (each["urn"] for each in trial.resources() if part in each["urn"])
        trial.pulumi("state", "delete", urn, "--yes", "--force")

    return step


def system(name: str) -> Step:
    return changed(lambda config: config["cluster"].update(system_namespace=name))


def swap_tenant(config: Config) -> None:
    del config["tenants"]["t0"]
    config["tenants"]["theirs"] = {}


def change_much(config: Config) -> None:
    del config["tenants"]["t3"]
    config["tenants"]["new"] = {}
    config["admission"]["exempt_namespaces"] = ["theirs"]
    for tenant in config["tenants"].values():
        tenant["pod_security"] = "restricted"


def not_ours(config: Config) -> None:
    config["priorities"]["tier-2"]["create"] = False


def use_peoples_class(config: Config) -> None:
    config["priorities"]["peoples"] = {"value": 5, "create": False}


def kueue_elsewhere(config: Config) -> None:
    config["kueue"]["namespace"] = "queueing"


def shell(script: str, *, fails: bool = False) -> Step:
    return lambda trial: trial.shell(script, fails=fails)


def rendered_over(prepare: str, then: str, *, refusal: str = "") -> Step:
    """Renders, runs the script `prepare` in the folder, renders again, and runs the test `then`."""

    def step(trial: Trial) -> None:
        trial.shell(f"rm -rf manifests elsewhere; {RENDER}; cd manifests; {prepare}")
        assert refusal in trial.shell(RENDER, fails=bool(refusal))
        trial.shell(f"cd manifests; {then}")

    return step


def other(trial: Trial, change: Change | None) -> Lab:
    """Returns another stack on the same cluster. Nothing of the first stack may change from now on."""
    trial.configure(change, "other")
    lab = replace(trial.lab, stack="other")
    trial.pulumi("stack", "select", "--create", lab=lab)
    trial.others = dict(trial.snapshot_of_ours())
    return lab


def of_its_own(config: Config) -> None:
    config["cluster"]["system_namespace"] = "other-system"
    config["tenants"] = {"immich": {}, "own": {}}


def a_class_of_ours(config: Config) -> None:
    config["cluster"]["system_namespace"] = "other-system"
    config["tenants"] = {"own": {}}
    del config["admission"], config["priorities"]["tier-2"]


def other_is_refused(change: Change | None = None) -> Step:
    return lambda trial: trial.refused("up", "two stacks cannot have the same object", other(trial, change))


def other_alone(*commands: str, change: Change | None = None, ours: bool = False) -> Step:
    """Runs Pulumi alone on another stack, and then our own `destroy`."""

    def step(trial: Trial) -> None:
        lab = other(trial, change)
        for command in commands:
            trial.pulumi(command, fails=True, lab=lab)
            trial.expect_nothing_lost()
        if ours:
            trial.run("destroy", lab)
            trial.expect_nothing_lost()
        trial.pulumi("stack", "rm", "--force", "--preserve-config", "--yes", lab=lab)
        trial.others.clear()

    return step


def forced(files: str) -> Step:
    """Applies rendered objects of another stack by force. Kubernetes lets no policy judge admission policies."""
    render = f"{sys.executable} -m stacks render --stack other --out others"
    apply = "kubectl apply --server-side --force-conflicts -f"

    def step(trial: Trial) -> None:
        other(trial, lambda config: config["tenants"].update(immich={"pod_security": "privileged"}))
        trial.shell(f"{render}; for each in others/{files}; do {apply} $each || true; done")
        trial.expect_nothing_lost()
        trial.others.clear()

    return step


def rival(trial: Trial) -> None:
    """A quota of another stack has the place of a new tenant's quota."""
    path = f"{NAMESPACES}/rival/resourcequotas/gpumem-seats"
    if trial.api.get(path) is None:
        trial.shell(RIVAL)
    eventually(lambda: trial.api.get(path)["status"].get("used"), "the quota is counted")
    trial.others = {path: trial.api.get(path)}
    trial.configure(lambda config: config["tenants"].update(rival={}))


def wrong_cluster(trial: Trial) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster.running(Path(folder) / "other", extent=Extent.API_SERVER) as running,
    ):
        lab = replace(trial.lab, cluster=running)
        before = lab.versions()
        for command in ("up", "destroy", "refresh"):
            done = trial.run(command, lab)
            assert done.text.startswith("The state of lab is of another cluster than "), done.text
        assert lab.versions() == before


def together(*commands: str) -> Step:
    """Runs commands at once, on both machines if there are two."""

    def step(trial: Trial) -> None:
        labs = [trial.lab, trial.spare or trial.lab]
        running = [trial.start(command, lab) for command, lab in zip(commands, labs, strict=True)]
        print(f"    {commands}: {[process.wait() for process, _ in running]}", flush=True)
        trial.said += [log.read_text() for _, log in running]

    return step


def other_machine(trial: Trial) -> None:
    assert trial.spare
    trial.lab, trial.spare = trial.spare, trial.lab


def cancel(trial: Trial) -> None:
    trial.pulumi("cancel", "--yes")


def waits_for(absence: Callable[[Any], object]) -> Step:
    """For minutes, no node runs the agents: the rollout waits."""

    def step(trial: Trial) -> None:
        for each in trial.lab.items("/api/v1/nodes"):
            trial.api.request("DELETE", f"/api/v1/nodes/{each['metadata']['name']}")
        bare = simulated.node("bare", labels={}, resources={})
        bare["metadata"]["annotations"] = {}
        bare["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]
        trial.api.create("/api/v1/nodes", bare)
        trial.configure(add_agents)
        process, log = trial.start("up", trial.lab)
        eventually(lambda: process.poll() is not None or ours_in_the_rollout(trial)(), "the Job is there")
        absence(trial.api)
        time.sleep(MINUTES_SECONDS)
        assert process.poll() is None, log.read_text()
        for node in simulated.nodes():
            trial.api.create("/api/v1/nodes", node)
        trial.api.request("DELETE", "/api/v1/nodes/bare")

        def ends() -> bool:
            for pod in trial.lab.items(f"{NAMESPACES}/{SYSTEM}/pods"):
                path = f"{NAMESPACES}/{SYSTEM}/pods/{pod['metadata']['name']}"
                trial.api.request("PATCH", path, COMPLETED, content_type="application/merge-patch+json")
            return process.poll() is not None

        eventually(ends, "the rollout ends", log.read_text)
        trial.said.append(log.read_text())
        assert process.returncode == 0, log.read_text()

    return step


COMPLETED = {"metadata": {"annotations": {simulated.COMPLETE: "true"}}}


def add_agents(config: Config) -> None:
    config["residents"] = {"ml": {"tenant": "immich", "pool": "gpu", "gpumem_mib": 4000}}
    config["reconcile"] = {}


def not_ready(api: Any) -> None:
    condition = {"type": "Ready", "status": "False", "reason": "Test", "message": "", "lastTransitionTime": None}
    api.patch("/api/v1/nodes/bare/status", {"status": {"conditions": [condition]}})


def absent(api: Any) -> None:
    api.request("DELETE", "/api/v1/nodes/bare")


def first(trial: Trial) -> None:
    if not trial.is_new:
        trial.again("destroy")


ATTEMPTS = {
    "base": (
        Attempt("P1", "the agents' namespace gets another name", (system("elsewhere"),)),
        Attempt("P1", "the same by pulumi alone, and back", (system("elsewhere"), alone("up"), changed(), alone("up"))),
        Attempt("P1", "it gets the name of somebody's", (system("theirs"), refused("up", "in use by"), changed())),
        Attempt("P1", "the same by pulumi alone, and back", (system("theirs"), alone("up"), changed(), alone("up"))),
        Attempt("P1", "a tenant gets the name of somebody's namespace", (changed(swap_tenant),)),
        Attempt("P1", "the same by pulumi alone, and back", (changed(swap_tenant), alone("up"), changed())),
        Attempt("P1", "the state is lost, then up", (forget,)),
        Attempt("P1", "the state is lost, a tenant left, then up", (forget, changed(change_much))),
        Attempt("P1", "the state is lost, then destroy", (forget,), "destroy"),
        Attempt("P1", "the state is lost, pulumi up alone, then up", (forget, alone("up", fails=True))),
        Attempt("P1", "a class of ours becomes create: false", (changed(not_ours), refused("up", MADE), changed())),
        Attempt("P1", "the same by pulumi alone", (changed(not_ours), alone("up", fails=True), changed())),
        Attempt("P1", "somebody's class is used and left", (
            shell("kubectl create priorityclass peoples --value=5"), changed(use_peoples_class), run("up"),
            changed(), run("up"), shell("kubectl delete priorityclass peoples"),
        )),
        Attempt("P1", "pulumi state delete of a tenant's patch", (forget_resource("NamespacePatch::t0"),)),
        Attempt("P1", "the same, and the tenant leaves", (forget_resource("NamespacePatch::t0"), changed(swap_tenant))),
        Attempt("P1", "pulumi state delete of the ledger", (forget_resource("ConfigMap::"),), "destroy"),
        Attempt("P1", "pulumi destroy alone", (alone("destroy"),), "destroy"),
        Attempt("P1", "the documented removal of rendered folders, then up", (shell(RENDER), shell(REMOVAL))),
        Attempt("P1", "kubectl delete -R of all rendered folders", (shell(RENDER), shell(DELETE_ALL, fails=True))),
        Attempt("P2", "another stack with the same objects", (other_is_refused(),)),
        Attempt("P2", "the same by pulumi alone: up, destroy", (other_alone("up", "destroy"),)),
        Attempt("P2", "another stack with one tenant of ours", (other_is_refused(of_its_own),)),
        Attempt("P2", "the same by pulumi alone", (other_alone("up", "destroy", change=of_its_own),)),
        Attempt("P2", "the same, and our destroy", (other_alone("up", ours=True, change=of_its_own),)),
        Attempt("P2", "another stack with a class of ours", (other_alone("up", "destroy", change=a_class_of_ours),)),
        Attempt("P2", "another stack's quota is in the way", (rival, refused("up", "two stacks cannot"), changed())),
        Attempt("P2", "the same by pulumi alone", (rival, alone("up", fails=True), changed())),
        Attempt("P2", "its ledger and quotas are applied by force", (forced("4-budgets/[cr]*"),)),
        Attempt("P2", "its labels of namespaces are applied by force", (forced("0-never-delete/*.kept"),)),
        Attempt("P3", "the context of another cluster", (wrong_cluster,)),
        Attempt("P3", "the same after a killed update", (changed(change_much), kill("up", writes(6)), wrong_cluster)),
        Attempt("P4", "a first up, killed early", (first, kill("up", writes(2)))),
        Attempt("P4", "a first up, killed in the middle, then destroy", (first, kill("up", writes(25))), "destroy"),
        Attempt("P4", "a first up, killed late", (first, kill("up", writes(48)))),
        Attempt("P4", "a first up, pulumi killed", (first, kill("up", writes(12), PULUMI))),
        Attempt("P4", "a first up, the provider killed", (first, kill("up", writes(12), PROVIDER))),
        Attempt("P4", "a first up, our process killed", (first, kill("up", writes(12), OURS))),
        Attempt("P4", "a first pulumi up alone, killed", (first, kill("up", writes(12), checkpoints=True))),
        Attempt("P4", "an update, killed; then other values", (changed(change_much), kill("up", writes(8)), changed())),
        Attempt("P4", "an update, the provider killed", (changed(change_much), kill("up", writes(6), PROVIDER))),
        Attempt("P4", "an update, pulumi killed", (changed(change_much), kill("up", writes(6), PULUMI))),
        Attempt("P4", "a pulumi update alone, killed", (changed(change_much), kill("up", writes(5), checkpoints=True))),
        Attempt("P4", "a rename, killed, and back", (system("elsewhere"), kill("up", writes(4)), changed())),
        Attempt("P4", "a destroy, killed early", (kill("destroy", writes(2)),), "destroy"),
        Attempt("P4", "a destroy, killed in the middle, then up", (kill("destroy", writes(20)),)),
        Attempt("P4", "a destroy, the provider killed", (kill("destroy", writes(8), PROVIDER),), "destroy"),
        Attempt("P4", "a destroy, our process killed", (kill("destroy", writes(8), OURS),), "destroy"),
        Attempt("P4", "a pulumi destroy alone, killed", (kill("destroy", writes(15), checkpoints=True),), "destroy"),
        Attempt("P4", "a refresh, killed", (kill("refresh", after(4)), run("refresh"))),
        Attempt("P4", "a preview of up, killed", (changed(change_much), kill("up", after(4), OURS))),
        Attempt("P4", "four kills in a row", (*(kill(each, writes(1, 25)) for each in ("destroy", "up") * 2),)),
        Attempt("P4", "a clearing of leftovers, killed", (forget, kill("destroy", writes(4))), "destroy"),
        Attempt("P4", "two ups at once", (changed(change_much), together("up", "up"))),
        Attempt("P4", "an up and a destroy at once", (changed(change_much), together("up", "destroy"))),
        Attempt("P5", "people's files in our folders, and .git", (
            rendered_over("git init -q .; mkdir apps; touch apps/a.yaml 4-budgets/mine.yaml flux/mine.yaml",
                          "test -d .git -a -f apps/a.yaml -a -f 4-budgets/mine.yaml -a -f flux/mine.yaml"),
        )),
        Attempt("P5", "somebody's file has a name of ours, without our index", (
            rendered_over("rm .rendered*; echo mine > 1-priorities/priorityclass_tier-2.yaml",
                          "grep -q mine 1-priorities/priorityclass_tier-2.yaml", refusal="did not write"),
        )),
        Attempt("P5", "the index names files elsewhere", (
            rendered_over("touch ../precious ../Pulumi.x; printf '../precious\\n/etc/hostname\\n0-never-delete/../x\\n"
                          "4-budgets/../../precious\\n' >> .rendered-by-gpu-tenancy-lab; touch x",
                          "test -f ../precious -a -f /etc/hostname -a -f x"),
        )),
        Attempt("P5", "a folder of ours is a link to somebody's", (
            rendered_over("mkdir ../elsewhere; mv 1-priorities/* ../elsewhere; rmdir 1-priorities;"
                          "echo mine > ../elsewhere/mine.yaml; ln -s ../elsewhere 1-priorities",
                          "grep -q mine ../elsewhere/mine.yaml"),
        )),
    ),
    "queues": (
        Attempt("P1", "Kueue's namespace gets another name", (changed(kueue_elsewhere), run("up"), changed())),
        Attempt("P1", "the same by pulumi alone", (changed(kueue_elsewhere), alone("up", fails=True), changed())),
        Attempt("P2", "another stack with a queue of ours", (other_is_refused(),)),
        Attempt("P2", "the same by pulumi alone: up, destroy", (other_alone("up", "destroy"),)),
        Attempt("P4", "killed while Helm installs", (first, kill("up", helm("pending-install")))),
        Attempt("P4", "the same, then destroy", (first, kill("up", helm("pending-install"))), "destroy"),
        Attempt("P4", "the same, the provider killed", (first, kill("up", helm("pending-install"), PROVIDER))),
        Attempt("P4", "the same, pulumi alone", (first, kill("up", helm("pending-install"), checkpoints=True))),
        Attempt("P4", "killed after Helm's installation", (first, kill("up", helm("deployed")))),
        Attempt("P4", "killed while Helm uninstalls", (kill("destroy", helm("uninstalling")),), "destroy"),
        Attempt("P4", "the same, then up", (kill("destroy", helm("uninstalling")),)),
        Attempt("P4", "the same, the provider killed", (kill("destroy", helm("uninstalling"), PROVIDER),), "destroy"),
        Attempt("P4", "the state is lost, then destroy", (forget,), "destroy"),
        Attempt("P4", "the state is lost, then up", (forget,)),
    ),
    "agents": (
        Attempt("P4", "a first up, killed while reconcile runs", (first, kill("up", ours_in_the_rollout))),
        Attempt("P4", "the same, then destroy", (first, kill("up", ours_in_the_rollout)), "destroy"),
        Attempt("P4", "a destroy, killed while nodes lose gpumem", (kill("destroy", retiring),), "destroy"),
        Attempt("P4", "the same, then up", (kill("destroy", retiring),)),
        Attempt("P1", "the agents' namespace gets another name", (system("elsewhere"), run("up"), changed())),
        Attempt("P1", "the state is lost, then destroy", (forget,), "destroy"),
        Attempt("P1", "the documented removal of rendered folders", (shell(RENDER), shell(REMOVAL)), "destroy"),
    ),
    "bucket": (
        Attempt("P4", "an up, killed; the other machine goes on", (
            changed(change_much), kill("up", writes(8)), cancel, other_machine,
        )),
        Attempt("P4", "a destroy, killed; the other machine goes on", (
            kill("destroy", writes(12)), cancel, other_machine,
        ), "destroy"),
        Attempt("P4", "a first up, killed; the other machine destroys", (
            first, kill("up", writes(20)), cancel, other_machine,
        ), "destroy"),
        Attempt("P4", "two machines: two ups at once", (changed(change_much), together("up", "up"))),
        Attempt("P4", "two machines: an up and a destroy at once", (changed(change_much), together("up", "destroy"))),
        Attempt("P4", "two machines: the provider of one killed", (
            changed(change_much), kill("up", writes(8), PROVIDER), other_machine,
        )),
    ),
    "node": (
        Attempt("P6", "the only node is not ready for minutes", (waits_for(not_ready),)),
        Attempt("P6", "the only node is gone for minutes", (waits_for(absent),)),
    ),
}  # fmt: skip
CONFIGS = {"base": BASE, "queues": QUEUES, "agents": AGENTS, "bucket": BASE, "node": BASE}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.attempts", description=__doc__)
    parser.add_argument("group", nargs="*", help=f"some of {', '.join(ATTEMPTS)}, also with numbers: base:1,7,9")
    parser.add_argument("--minutes", type=float, default=1000, help="begin no attempt later than this")
    parser.add_argument("--chain", type=int, default=1, help="how many attempts share the last command and the checks")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    given = parser.parse_args()
    deadline, broken = time.monotonic() + given.minutes * 60, 0
    for chosen in given.group or ATTEMPTS:
        group, _, some = chosen.partition(":")
        numbers = [int(each) for each in some.split(",")] if some else [*range(1, len(ATTEMPTS[group]) + 1)]
        while numbers and time.monotonic() < deadline:
            broken += try_some(group, numbers, given, deadline)
    print(f"seed {given.seed}: {broken} attempts have broken a property")
    raise SystemExit(bool(broken))


def try_some(group: str, numbers: list[int], given: argparse.Namespace, deadline: float) -> int:
    """Tries until an attempt has broken something, because its cluster is not used again. Returns 1 then."""
    with beginning(group, given.seed) as trial:
        left = given.chain
        while numbers and time.monotonic() < deadline:
            number, began = numbers.pop(0), time.monotonic()
            attempt = ATTEMPTS[group][number - 1]
            print(f"{group} {number} {attempt.promise} {attempt.name}", flush=True)
            try:
                trial.begin(rolls_out=not attempt.begins_anywhere)
                for step in attempt.steps:
                    trial.is_settled = False
                    step(trial)
                    trial.expect_nothing_lost()
                left -= 1
                if not left or not numbers or time.monotonic() > deadline:
                    trial.end(attempt.last)
                    left = given.chain
            except Exception as error:  # noqa: BLE001 (the others are tried too)
                log = Path(tempfile.gettempdir()) / f"attempt-{group}-{number}.log"
                log.write_text("\n".join([*trial.said, traceback.format_exc()]))
                print(f"    BROKEN ({time.monotonic() - began:.0f} s), see {log}: {str(error)[:2000]}", flush=True)
                return 1
            how = "holds" if left == given.chain else "loses nothing so far"
            print(f"    {how} ({time.monotonic() - began:.0f} s)", flush=True)
    return 0


@contextmanager
def beginning(group: str, seed: int) -> Iterator[Trial]:
    extent = Extent.REAL_NODE if group == "agents" else Extent.SIMULATED
    moments = random.Random(seed)  # noqa: S311 (moments, not secrets)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        running = stack.enter_context(cluster.running(Path(folder) / "cluster", extent=extent))
        if group == "bucket":
            machine = stack.enter_context(bucket())
            spaces = [machine(Path(folder) / name) for name in ("one", "other")]
        else:
            (Path(folder) / "one").mkdir()
            spaces = [workspace(Path(folder) / "one")]
        labs = [Lab(running, space) for space in spaces]
        yield Trial(labs[0], CONFIGS[group], moments, labs[1] if labs[1:] else None)


if __name__ == "__main__":
    main()
