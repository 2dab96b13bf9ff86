"""What every agent's workload has in common, whichever component declares it."""

import importlib
from dataclasses import replace
from typing import Any

import pytest

from agents import __main__ as shipped
from agents.__main__ import AGENTS as AGENT_MODULES
from agents.runtime import settings as agent_environment
from components.agents.exporter import Exporter, ExporterArgs, ExporterSpec
from components.agents.gate import GATE_DEADLINE_SECONDS, Gate, GateArgs, GateSpec, OnDemandSpec, WindowDemand
from components.agents.guard import Guard, GuardArgs
from components.agents.reconcile import Capacity, CapacityArgs, ReconcileSpec
from components.agents.watchdog import Watchdog, WatchdogArgs, WatchdogSpec, watchdog_agent
from components.base.agent import DEADLINE_SECONDS, RUN_SECONDS, Agent, pod_template
from components.base.spec import TolerationSpec
from components.monitoring.rules.alert import SILENT_SECONDS
from tests.support.engine import Graph
from tests.support.given import CLUSTER, CODE, LEDGER, NODE_4, SYSTEM, container, declared, pod

FIELDS = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "NODE_NAME": "spec.nodeName"}
# The extender and certify share the scheduler's pod, see test_scheduler.py.
AGENTS = set(shipped.AGENTS) - {"extender", "certify"}
TTS = OnDemandSpec(tenant="tts", pool="t4", need_mib=2048, window=WindowDemand(between="02:00-06:00"))


def graphs() -> list[Graph]:
    exporter = ExporterSpec()
    shared = {"cluster": CLUSTER, "code": CODE}
    return [
        declared(Capacity, "c", CapacityArgs(**shared, ledger=LEDGER, reconcile=ReconcileSpec())),
        declared(Exporter, "e", ExporterArgs(**shared, ledger=LEDGER, spec=exporter)),
        declared(Watchdog, "w", WatchdogArgs(**shared, exporter=exporter, spec=WatchdogSpec(), budgeted=[])),
        declared(Gate, "g", GateArgs(**shared, exporter=exporter, spec=GateSpec(), on_demand={"tts": TTS})),
        declared(Guard, "m", GuardArgs(**shared, pools=(NODE_4,))),
    ]


@pytest.fixture(scope="module")
def workloads() -> list[dict[str, Any]]:
    kinds = ("CronJob", "Job", "DaemonSet")
    return [dict(o) for graph in graphs() for o in graph.objects() if o["kind"] in kinds]


@pytest.fixture(scope="module")
def cron_jobs(workloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [w for w in workloads if w["kind"] == "CronJob"]


def test_every_agent_has_a_workload_and_the_rollout_has_a_job(workloads: list[dict[str, Any]]) -> None:
    assert sorted((w["kind"], container(w)["name"]) for w in workloads) == [
        ("CronJob", "gate"),
        ("CronJob", "reconcile"),
        ("CronJob", "watchdog"),
        ("DaemonSet", "exporter"),
        ("DaemonSet", "guard"),
        ("Job", "reconcile"),
    ]
    assert {container(w)["name"] for w in workloads} == AGENTS


def test_every_pod_is_hardened(workloads: list[dict[str, Any]]) -> None:
    for workload in workloads:
        assert pod(workload)["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert pod(workload)["enableServiceLinks"] is False
        security = container(workload)["securityContext"]
        assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True)
        assert security["capabilities"]["drop"] == ["ALL"]


def test_only_the_guard_is_root_and_has_capabilities(workloads: list[dict[str, Any]]) -> None:
    privileges = {"runAsUser", "runAsNonRoot", "capabilities"}
    held = {container(w)["name"]: privileges & container(w)["securityContext"].keys() for w in workloads}
    assert {name for name, fields in held.items() if fields != {"capabilities"}} == {"guard"}
    adding = {container(w)["name"] for w in workloads if "add" in container(w)["securityContext"]["capabilities"]}
    assert adding == {"guard"}


def test_only_an_agent_with_rights_gets_a_token(workloads: list[dict[str, Any]]) -> None:
    assert {container(w)["name"] for w in workloads if pod(w)["automountServiceAccountToken"]} == AGENTS
    agent = watchdog_agent(
        WatchdogArgs(spec=WatchdogSpec(), cluster=CLUSTER, code=CODE, exporter=ExporterSpec(), budgeted=[])
    )
    assert pod_template(replace(agent, rules=()))["spec"]["automountServiceAccountToken"] is False


def test_a_failed_container_leaves_its_last_words_in_its_status(workloads: list[dict[str, Any]]) -> None:
    """A Job is awaited by `pulumi up`, which shows the status and not the log."""
    assert {container(w)["terminationMessagePolicy"] for w in workloads} == {"FallbackToLogsOnError"}


def test_every_container_has_its_memory_limited(workloads: list[dict[str, Any]]) -> None:
    for workload in workloads:
        assert container(workload)["resources"] == {
            "requests": {"cpu": "20m", "memory": "32Mi"},
            "limits": {"memory": "128Mi"},
        }


def test_every_pod_has_one_volume_the_read_only_code(workloads: list[dict[str, Any]]) -> None:
    for workload in workloads:
        (volume,) = pod(workload)["volumes"]
        assert volume["configMap"] == {"name": CODE.config_map, "defaultMode": 0o444}
        (mount,) = container(workload)["volumeMounts"]
        assert mount == {"name": volume["name"], "mountPath": "/opt/gpu-tenancy", "readOnly": True}


def test_every_agent_runs_its_own_program_under_its_own_account(workloads: list[dict[str, Any]]) -> None:
    for workload in workloads:
        program = container(workload)["name"]
        assert container(workload)["command"] == ["python", "-I", "/opt/gpu-tenancy/agents.pyz", program]
        assert container(workload)["image"] == CLUSTER.agent_image
        assert workload["metadata"]["name"].startswith(pod(workload)["serviceAccountName"])
    assert len({pod(w)["serviceAccountName"] for w in workloads}) == len(AGENTS)


def test_every_agent_reads_the_environment_that_its_manifest_gives_it(workloads: list[dict[str, Any]]) -> None:
    for workload in workloads:
        given = {e["name"]: e.get("value", "from-a-field") for e in container(workload)["env"]}
        settings = importlib.import_module(AGENT_MODULES[container(workload)["name"]]).Settings
        assert agent_environment.read(settings, given)


def test_every_agent_knows_its_pod_and_where_the_ledger_is(workloads: list[dict[str, Any]]) -> None:
    for workload in workloads:
        given = {e["name"]: e for e in container(workload)["env"]}
        assert len(given) == len(container(workload)["env"])
        assert {n: given[n]["valueFrom"]["fieldRef"]["fieldPath"] for n in FIELDS} == FIELDS
        assert given["LEDGER_NAMESPACE"]["value"] == SYSTEM


def test_only_agents_that_can_act_may(workloads: list[dict[str, Any]]) -> None:
    dry = {
        container(w)["name"]: next(e["value"] for e in container(w)["env"] if e["name"] == "DRY_RUN") for w in workloads
    }
    assert dry == {"reconcile": "false", "exporter": "false", "guard": "false", "watchdog": "true", "gate": "true"}


def test_every_cron_job_runs_each_minute_whatever_became_of_the_run_before(cron_jobs: list[dict[str, Any]]) -> None:
    for cron_job in cron_jobs:
        spec = dict(cron_job["spec"])
        job = spec.pop("jobTemplate")["spec"]
        assert spec == {
            "schedule": "* * * * *",
            "concurrencyPolicy": "Allow",
            "startingDeadlineSeconds": 30,
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 3,
        }
        deadline_seconds = GATE_DEADLINE_SECONDS if container(cron_job)["name"] == "gate" else DEADLINE_SECONDS
        assert (job["backoffLimit"], job["activeDeadlineSeconds"]) == (0, deadline_seconds)
        assert pod(cron_job)["restartPolicy"] == "Never"


def test_a_run_ends_before_its_deadline_and_the_deadline_before_the_next_run() -> None:
    slowest_start_seconds = 10
    assert RUN_SECONDS + slowest_start_seconds < DEADLINE_SECONDS < 60
    assert SILENT_SECONDS > 60 + DEADLINE_SECONDS


def test_no_tenant_preempts_an_agent(workloads: list[dict[str, Any]]) -> None:
    """A class of a tenant's is at most 1000000000, the system's are above it."""
    classes = {container(w)["name"]: pod(w)["priorityClassName"] for w in workloads}
    on_nodes = {"exporter", "guard"}
    assert classes == {
        name: "system-node-critical" if name in on_nodes else "system-cluster-critical" for name in classes
    }


def test_agents_run_where_the_operator_says_that_they_may() -> None:
    spared = TolerationSpec(key="spared", value="yes")
    agent = Agent(
        program="watchdog",
        name="w",
        namespace=SYSTEM,
        cluster=CLUSTER.model_copy(update={"agent_tolerations": [spared]}),
        code=CODE,
        environment={},
        rules=(),
        dry_run=True,
    )
    told = {"key": "spared", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
    assert pod_template(agent)["spec"]["tolerations"] == [told]
    own = {"key": "gpu", "operator": "Exists"}
    assert pod_template(agent, pod={"tolerations": [own]})["spec"]["tolerations"] == [own, told]
    assert "tolerations" not in pod_template(replace(agent, cluster=CLUSTER))["spec"]
