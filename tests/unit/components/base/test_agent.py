"""Tests the rules for the workloads of all agents. The golden stack has every agent."""

import importlib
from dataclasses import replace
from typing import Any

import pytest
import yaml

from agents.runtime import settings as agent_environment
from components.agents.watchdog import WatchdogArgs, WatchdogSpec, watchdog_agent
from components.base.agent import DEADLINE_SECONDS, RUN_SECONDS, pod_template
from stacks import platform, settings
from tenancy.seconds import SILENT_SECONDS
from tests.golden.render import FOLDER
from tests.support.engine import build
from tests.support.given import CLUSTER, CODE, pod
from tests.support.prod import raw

FIELDS = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "NODE_NAME": "spec.nodeName"}
KINDS = ("CronJob", "Job", "DaemonSet", "Deployment")
ON_NODES = {"exporter", "guard"}


@pytest.fixture(scope="module")
def workloads() -> list[dict[str, Any]]:
    documents = yaml.load_all((FOLDER / "every.objects.yaml").read_text(), yaml.CSafeLoader)
    found = [each["inputs"] for each in documents if "inputs" in each]
    return [each for each in found if each.get("kind") in KINDS and "command" in container(each)]


def container(workload: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = pod(workload)["containers"][0]
    return own


@pytest.mark.no_cover
def test_an_agent_starts_after_its_rights_its_journal_and_on_nodes_its_network_policy() -> None:
    def program() -> None:
        platform.build(settings.parse(raw()))

    graph = build(program)
    for identity in graph.all("Identity"):
        agent = graph.parent(identity)
        assert agent is not None
        siblings = graph.children(agent)
        (workload, *_) = (each for each in siblings if each.kind in KINDS)
        ends = ("-journal", "-network-policy") if workload.kind == "DaemonSet" else ("-journal",)
        before = graph.children(identity) + [each for each in siblings if each.name.endswith(ends)]
        assert all(graph.depends_on(workload, each) for each in before)


def test_every_pod_is_hardened(workloads: list[dict[str, Any]]) -> None:
    for workload in workloads:
        assert pod(workload)["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert pod(workload)["enableServiceLinks"] is False
        for each in (*pod(workload)["containers"], *pod(workload).get("initContainers", ())):
            security = each["securityContext"]
            assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True)
            assert security["capabilities"]["drop"] == ["ALL"]
            assert "memory" in each["resources"]["limits"]
            assert all(m.get("readOnly") for m in each["volumeMounts"] if m["mountPath"] == "/opt/gpu-tenancy")


def test_only_the_guard_is_root_and_has_capabilities(workloads: list[dict[str, Any]]) -> None:
    privileges = {"runAsUser", "runAsNonRoot", "capabilities"}
    held = {container(w)["name"]: privileges & container(w)["securityContext"].keys() for w in workloads}
    assert {name for name, fields in held.items() if fields != {"capabilities"}} == {"guard"}
    adding = {container(w)["name"] for w in workloads if "add" in container(w)["securityContext"]["capabilities"]}
    assert adding == {"guard"}


def test_an_agent_without_rights_gets_no_token() -> None:
    agent = watchdog_agent(WatchdogArgs(spec=WatchdogSpec(), cluster=CLUSTER, code=CODE, budgeted=[]))
    assert pod_template(agent)["spec"]["automountServiceAccountToken"] is True
    assert pod_template(replace(agent, rules=()))["spec"]["automountServiceAccountToken"] is False


def test_every_agent_reads_the_environment_that_its_manifest_gives_it(workloads: list[dict[str, Any]]) -> None:
    for workload in workloads:
        given = {each["name"]: each for each in container(workload)["env"]}
        assert len(given) == len(container(workload)["env"])
        program = container(workload)["name"]
        module = "gpumem.board_pod" if program == "board" else f"agents.{program}.main"
        settings = importlib.import_module(module).Settings
        values = {name: each.get("value", "from-a-field") for name, each in given.items()}
        assert agent_environment.read(settings, values)
        assert {n: given[n]["valueFrom"]["fieldRef"]["fieldPath"] for n in FIELDS} == FIELDS


def test_a_run_ends_before_its_deadline_and_the_deadline_before_the_next_run() -> None:
    slowest_start_seconds = 10
    assert RUN_SECONDS + slowest_start_seconds < DEADLINE_SECONDS < 60
    assert SILENT_SECONDS > 60 + DEADLINE_SECONDS


def test_no_tenant_preempts_an_agent(workloads: list[dict[str, Any]]) -> None:
    """The board only shows numbers, so it has no PriorityClass."""
    classes = {container(w)["name"]: pod(w).get("priorityClassName") for w in workloads}
    assert classes.pop("board") is None
    assert classes == {
        name: "system-node-critical" if name in ON_NODES else "system-cluster-critical" for name in classes
    }
