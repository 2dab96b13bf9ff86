"""`python -m tests.unit.policy.page` writes the rules into docs/gate.md, each with an example made by running it.

To add an example, add an entry to EXAMPLES. What stands above the rules is written by hand.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from policy.rules import RULES, Rule
from tenancy import names
from tenancy.host_memory.pool import HostMemoryPool
from tenancy.ledger import Enforce, Ledger, Seat, Sharing
from tests.support import graphs
from tests.support.graphs import (
    CLICKHOUSE,
    GPUMEM,
    INFERENCE,
    LEDGER,
    MICROVM,
    NODE_4,
    Manifest,
    Program,
    an_object,
    judge,
    platform,
    pool,
    put,
    seat,
)
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "gate.md"
BELOW = "<!-- below: python -m tests.unit.policy.page -->\n"
POD = "spec.template.spec"
MAIN = f"{POD}.containers.0"
AGENT = "spec.jobTemplate.spec.template.spec.containers.0"


@dataclass(frozen=True)
class Example:
    """One mistake: a value at a place, what to write there instead, and the program with such a value. `right` is None
    where the object is to be left out."""

    rule: str
    where: str
    wrong: Any
    right: Any
    program: Callable[[Any], Program]
    instead: str = ""
    config: Mapping[str, Any] | None = None  # of the pack

    def said(self) -> list[str]:
        return judge(self.program(self.wrong), self.config)

    def said_of_the_right_one(self) -> list[str]:
        return judge(self.program(self.right), self.config)


def setting(rule: str, where: str, wrong: Any, right: Any, ledger: Callable[[Any], Ledger]) -> Example:
    """A key of the stack file, by the ledger that it makes."""
    return Example(rule, where, wrong, right, lambda value: platform(ledger(value)))


def memory(rule: str, where: str, wrong: Any, right: Any, change: Callable[[Any], HostMemoryPool]) -> Example:
    """A key under memory_pools.node-4."""
    return Example(rule, f"memory_pools.node-4.{where}", wrong, right, lambda value: platform(memory=change(value)))


def field(rule: str, name: str, path: str, wrong: Any, right: Any, *, of: Callable[[], Program] = platform) -> Example:
    """A field of an object that a program declares."""

    def changed(value: Any) -> Program:
        found = of()
        put(found[name], path, value)
        return found

    return Example(rule, f"{_called(of()[name])}: {path}", wrong, right, changed)


def more(rule: str, wrong: Manifest, right: Manifest | None, instead: str = "") -> Example:
    """An object beside a platform that breaks no rule."""

    def added(value: Manifest | None) -> Program:
        return platform() if value is None else platform() | {"more": value}

    return Example(rule, "", wrong, right, added, instead)


def beside(rule: str, wrong: Manifest, right: Manifest) -> Example:
    """An object of a program beside the platform's, which is given the platform's ledger."""
    return Example(rule, "", wrong, right, lambda value: {"it": value}, config={"ledger": LEDGER.to_data()})


def _called(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    name = "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)
    return f"{manifest['kind']} {name}"


def _big(mib: int, replicas: int = 1) -> Ledger:
    big = Seat(name="big", tenant="immich", pool="t4", gpumem_mib=mib, replicas=replicas)
    return replace(pool("t4", device_count=2), seats=(*LEDGER.seats, big))


def _unbudgeted(**changes: Any) -> Ledger:
    return replace(LEDGER, unbudgeted=(replace(LEDGER.unbudgeted[0], **changes),))


def _held_by(driver: str) -> Ledger:
    return pool("t4", enforce=Enforce.DRIVER, driver_version=driver, toolkit_version="1.20.1")


def _inference(**changes: Any) -> HostMemoryPool:
    return replace(NODE_4, workloads=(replace(INFERENCE, **changes), CLICKHOUSE))


def _clickhouse(**changes: Any) -> HostMemoryPool:
    return replace(NODE_4, workloads=(INFERENCE, replace(CLICKHOUSE, growth_mib_per_second=1, **changes)))


def _victim(**changes: Any) -> HostMemoryPool:
    return replace(NODE_4, disposable=(replace(MICROVM, **changes),))


def _with_a_node() -> Program:
    node = an_object("v1", "Node", "k8s-node1")
    node["metadata"]["labels"] = {"nvidia.com/gpu.sharing-strategy": "time-slicing", names.LABEL_GPU_MEMORY: "15360"}
    return platform() | {"node": node}


def _fallback(flavors: list[str]) -> Program:
    spare = replace(LEDGER.quotas[0], flavor="gpu-spot", nominal=0)
    program = platform(replace(LEDGER, quotas=(*LEDGER.quotas, spare)))
    program["spare"] = graphs.kueue("ResourceFlavor", "gpu-spot", spec={})
    queue = graphs.cluster_queue(*flavors)
    for given in queue["spec"]["resourceGroups"][0]["flavors"][1:]:
        given["resources"][0]["nominalQuota"] = 0
    return program | {"cluster queue": queue}


def _member(program: Program, limit: str) -> Program:
    resources = {"requests": {"memory": "8Gi"}, "limits": {"memory": limit}}
    spec = {
        "nodeSelector": dict(NODE_4.node_selector),
        "priorityClassName": INFERENCE.priority,
        "containers": [{"name": "main", "image": graphs.IMAGE, "resources": resources}],
    }
    return program | {
        "it": an_object("apps/v1", "Deployment", "inference", "inference", spec={"template": {"spec": spec}})
    }


def _stamped(priority: str) -> Program:
    """prod's inference, whose GPU is on its memory pool's node."""
    selector = {**NODE_4.node_selector, "nvidia.com/gpu.sharing-strategy": "exclusive"}
    gpus = replace(graphs.T4, name="node-4", node_selector=selector, sharing=Sharing.MEMORY)
    seats = (*LEDGER.seats, Seat(name="inference", tenant="inference", pool="node-4", gpumem_mib=12288))
    program = platform(replace(LEDGER, pools=(*LEDGER.pools, gpus), seats=seats))
    for resident in LEDGER.seats:
        del program[resident.name]
    for key, operator in (("stamp", "NotIn"), ("stamp tts", "In")):
        expression = [{"key": names.LABEL_NAMESPACE, "operator": operator, "values": ["tts", "inference"]}]
        put(program[key], "spec.matchConstraints.namespaceSelector.matchExpressions", expression)
    put(program["stamp tts"], "spec.mutations", graphs.stamp("", priority)["spec"]["mutations"])
    return program


def _stranger(limit: str) -> Program:
    resources = {"requests": {"memory": "1Gi"}, "limits": {"memory": limit}}
    spec = {"containers": [{"name": "main", "image": graphs.IMAGE, "resources": resources}]}
    return platform() | {"web": an_object("apps/v1", "Deployment", "web", "web", spec={"template": {"spec": spec}})}


def _scheduler(name: str) -> Program:
    program = platform()
    data = program["scheduler config"]["data"]
    config = json.loads(data["config.json"])
    config["profiles"] = [{"schedulerName": name}]
    data["config.json"] = json.dumps(config)
    return program


def _operator(home: str) -> Program:
    rules = [graphs.rule("prometheuses", "get", "patch", group="monitoring.coreos.com")]
    rules += [graphs.rule("statefulsets", "create", "patch", group="apps")]
    return graphs.role("prometheus-operator", rules, home=home)


HELD = an_object("v1", "Namespace", "immich")
HELD["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "baseline"}

EXAMPLES: tuple[Example, ...] = (
    more(
        "ledger",
        {**graphs.ledger_object(), "metadata": {"name": names.LEDGER, "namespace": "other"}, "data": {}},
        None,
        "nothing: the platform's ledger rules, and another program is given it as configuration",
    ),
    setting("ledger-references", "unbudgeted.android-emulator.pool", "t5", "t4", lambda name: _unbudgeted(pool=name)),
    setting("budgets", "residents.llama-swap.gpumem_mib", 7000, 5000, lambda mib: seat("llama-swap", gpumem_mib=mib)),
    field(
        "physical",
        "node",
        "metadata.labels",
        {"nvidia.com/gpu.sharing-strategy": "time-slicing", names.LABEL_GPU_MEMORY: "12288"},
        {"nvidia.com/gpu.sharing-strategy": "time-slicing", names.LABEL_GPU_MEMORY: "15360"},
        of=_with_a_node,
    ),
    setting("seat-size", "residents.big.gpumem_mib", 14100, 100, _big),
    setting("placement", "residents.big.gpumem_mib # of 2 replicas", 7300, 100, lambda mib: _big(mib, 2)),
    setting(
        "full-seats", "unbudgeted.android-emulator.measured_mib", 911, 910, lambda mib: _unbudgeted(measured_mib=mib)
    ),
    setting("caps", "pools.t4.driver_version # with enforce: driver", "580.95.05", "615.71.09", _held_by),
    field("counted", "llama-swap", f"{MAIN}.resources.limits", {GPUMEM: "5000MB"}, {GPUMEM: "5000"}),
    more(
        "counted",
        an_object("argoproj.io/v1alpha1", "Rollout", "x", "immich", spec={"template": graphs.pod(1000)}),
        None,
        "a Deployment, which can be counted",
    ),
    field("seats", "llama-swap", f"{MAIN}.resources.limits", {GPUMEM: "5001"}, {GPUMEM: "5000"}),
    field("seats", "llama-swap", "spec.replicas", 2, 1),
    field(
        "device",
        "llama-swap",
        f"{MAIN}.resources.limits",
        {GPUMEM: "5000", "viktorbarzin.me/gpu-count": "2"},
        {GPUMEM: "5000", "viktorbarzin.me/gpu-count": "1"},
    ),
    field("rollout", "llama-swap", "spec.strategy", {"type": "RollingUpdate"}, {"type": "Recreate"}),
    field("whole-mib", "llama-swap", f"{MAIN}.resources.requests", {GPUMEM: "4000"}, {GPUMEM: "5000"}),
    field("resource-quota", "quota immich", "spec.hard", {f"requests.{GPUMEM}": "5k"}, {f"requests.{GPUMEM}": "4800"}),
    more("namespaces", an_object("v1", "Namespace", "immich"), HELD),
    beside(
        "platform",
        an_object("v1", "LimitRange", "x", "immich", spec={"limits": [{"type": "Container", "max": {names.GPU: "1"}}]}),
        an_object("v1", "LimitRange", "x", "immich", spec={"limits": [{"type": "Container", "max": {"cpu": "4"}}]}),
    ),
    field("gpu-quota", "cluster queue", "spec.resourceGroups.0.flavors.0.resources.0.nominalQuota", 2, 1),
    field(
        "queue-coverage",
        "job",
        f"{MAIN}.resources.limits",
        {names.GPU: "1", "example.com/fpga": "1"},
        {names.GPU: "1"},
    ),
    field(
        "namespace-selector",
        "cluster queue",
        "spec.namespaceSelector",
        None,
        {"matchLabels": {names.LABEL_NAMESPACE: "team-a"}},
    ),
    field(
        "preemption",
        "cluster queue",
        "spec.preemption",
        {"withinClusterQueue": "Never"},
        {"withinClusterQueue": "LowerPriority"},
    ),
    Example(
        "flavors", "ClusterQueue gpu-cq: flavors of nvidia.com/gpu", ["gpu-any", "gpu-spot"], ["gpu-any"], _fallback
    ),
    field("priorities", "tier-2-gpu", "value", 1_200_000, 600_000),
    memory(
        "memory-pools",
        "workloads.inference.priority",
        "homelab-kritical",
        "homelab-critical",
        lambda name: _inference(priority=name),
    ),
    memory("memory-requests", "workloads.inference.request_mib", 4096, 8192, lambda mib: _inference(request_mib=mib)),
    memory("memory-limits", "workloads.inference.limit_mib", 65_536, 32_768, lambda mib: _inference(limit_mib=mib)),
    memory("memory-victim", "disposable.agent-microvm.pods_least", 0, 1, lambda count: _victim(pods_least=count)),
    memory("memory-oom", "guard", False, True, lambda guard: replace(NODE_4, guard=guard)),
    memory(
        "memory-eviction",
        "disposable.agent-microvm.priority",
        "homelab-critical",
        "homelab-disposable",
        lambda name: _victim(priority=name),
    ),
    memory(
        "memory-peaks",
        "workloads.clickhouse.peak_mib",
        50_000,
        40_000,
        lambda mib: _clickhouse(peak_mib=mib, limit_mib=50_000),
    ),
    Example(
        "memory-workloads",
        f"Deployment inference/inference: {MAIN}.resources.limits.memory",
        "40Gi",
        "32Gi",
        lambda limit: _member(platform(), limit),
    ),
    field("memory-guard", "guard", f"{MAIN}.env.2.value", "65536", "62464"),
    Example("memory-gpu", "admission.tenant_priorities.inference", "tier-2-gpu", "homelab-critical", _stamped),
    Example("memory-strangers", f"Deployment web/web: {MAIN}.resources.limits.memory", "2Gi", "1Gi", _stranger),
    field("agents", "watchdog", f"{AGENT}.env.2.value", "9400", "9401"),
    Example("scheduler", "ConfigMap scheduler-config: profiles.0.schedulerName", "other", "gpu-tenancy", _scheduler),
    more(
        "claims",
        graphs.claim_template("frigate", "frigate", "2001Mi"),
        graphs.claim_template("frigate", "frigate", "2000Mi"),
    ),
    field("rbac", f"{names.WATCHDOG} Role", "rules.0.resources", ["secrets"], ["configmaps"]),
    Example(
        "rbac",
        "ClusterRoleBinding prometheus-operator: subjects.0.namespace",
        "monitoring",
        "kube-system",
        lambda home: platform() | _operator(home),
        "RoleBindings, one in each namespace that it works in, or `monitoring` under `admission.trusted_namespaces`",
    ),
    Example(
        "rbac",
        "ClusterRoleBinding node-labels: subjects.0.namespace",
        "immich",
        "kube-system",
        lambda home: platform() | graphs.role("node-labels", [graphs.rule("nodes", "patch")], home=home),
        "nothing: no tenant's account may have such a right",
    ),
    field("admission", "llama-swap", f"{MAIN}.securityContext", {"privileged": True}, {"privileged": False}),
    field("hardened", "watchdog", f"{AGENT}.resources.limits", {}, {"memory": "64Mi"}),
    field("images", "llama-swap", f"{MAIN}.image", "ghcr.io/a/b:latest", "ghcr.io/a/b:1.2.3"),
)


def page() -> str:
    """The page as it is, with the rules as they are now."""
    head, mark, _ = PAGE.read_text().partition(BELOW)
    return head + mark + "".join(_section(rule) for rule in RULES)


def _section(rule: Rule) -> str:
    examples = (example for example in EXAMPLES if example.rule == rule.id)
    return f"\n### {rule.id}\n\n{rule.description}\n" + "".join(map(_shown, examples))


def _shown(example: Example) -> str:
    said = "\n".join(example.said())
    return f"\n```yaml\n{_written(example.where, example.wrong)}\n```\n\n```text\n{said}\n```\n\n{_instead(example)}\n"


def _instead(example: Example) -> str:
    if example.instead:
        return f"Write {example.instead}."
    written = _written(example.where, example.right)
    line = written.rpartition("\n")[2]
    return f"Write:\n\n```yaml\n{written}\n```" if not example.where else f"Write `{line}`."


def _written(where: str, value: Any) -> str:
    if not where:
        return str(yaml.safe_dump(value, sort_keys=False, width=1000)).rstrip()
    key, comment, rest = where.partition(" # ")
    flow = yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()
    place, _, path = key.rpartition(": ")
    return "\n".join([*([f"# {place}"] if place else []), f"{path}: {flow}{comment}{rest}"])


if __name__ == "__main__":
    PAGE.write_text(page())
