"""Makes the hardened pod template of all agents, and the CronJob that runs some of the agents each minute."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.base.identity import Account
from components.base.manifest import Manifest
from components.base.system import ClusterSpec
from components.base.zipapp import Zipapp
from tenancy import names

# A run repeats its passes for RUN_SECONDS. The time of the last completed run is the heartbeat, so a run must end
# before the Job's deadline. A pod starts 2 to 10 s after the full minute, and the last pass needs time as well.
RUN_SECONDS = 45
DEADLINE_SECONDS = 58

# Prometheus scrapes the container port with the name `metrics`.
METRICS_PORT = "metrics"

_USER = 65532  # user ID of "nonroot" in the distroless images; the agents' image gives this user no files and no shell


@dataclass(frozen=True, kw_only=True)
class Volume:
    """Describes a volume of the pod and the volume's path in a container. `source` holds the volume's API fields
    without the name."""

    name: str
    path: str
    source: Mapping[str, Any]

    @property
    def declared(self) -> Manifest:
        return {"name": self.name, **self.source}

    def mount(self) -> Manifest:
        return {"name": self.name, "mountPath": self.path, "readOnly": True}


@dataclass(frozen=True, kw_only=True)
class Agent(Account):
    """Describes a program in the zipapp, with its ServiceAccount and its environment variables.

    With `capabilities`, the program runs as root, because Kubernetes gives capabilities only to root (KEP-2763). A
    program with `capabilities` has no other capabilities.
    """

    cluster: ClusterSpec
    code: Zipapp
    environment: Mapping[str, str]
    memory_mib: int = 128
    capabilities: tuple[str, ...] = ()
    priority_class: str | None = names.CLUSTER_CRITICAL

    @property
    def selector(self) -> dict[str, str]:
        """Returns the labels by which selectors find the agent's pods in their namespace."""
        return {names.LABEL_NAME: self.name}

    @property
    def code_path(self) -> str:
        """Returns the path of the zipapp in the agent's container."""
        return f"{names.AGENTS_DIRECTORY}/{names.AGENTS_KEY}" if self.code_volumes else self.code.image_path

    @property
    def code_volumes(self) -> list[Volume]:
        """Returns the volume of the code's ConfigMap, or nothing if the image contains the code."""
        return [
            Volume(
                name="code",
                path=names.AGENTS_DIRECTORY,
                source={"configMap": {"name": code.config_map, "defaultMode": 0o444}},
            )
            for code in self.cluster.shipped(self.code)
        ]

    def declare(self, api_version: str, kind: str, **body: object) -> Manifest:
        """Returns an object with the agent's name."""
        return {"apiVersion": api_version, "kind": kind, "metadata": self.metadata, **body}


def probes(alive: str, ready: str, port: int | str = METRICS_PORT, **request: str) -> Manifest:
    """Returns the probes of a container that serves the two paths.

    On a busy node, Python can need more than 30 s to compile an agent's modules. The startup probe lets a start take
    five minutes. Otherwise, the liveness probe would end each start, until the kubelet waits five minutes between two
    starts.
    """

    def probe(path: str, seconds: int) -> Manifest:
        return {"httpGet": {"path": path, "port": port, **request}, "periodSeconds": seconds, "timeoutSeconds": 5}

    return {
        "startupProbe": {**probe(alive, 2), "failureThreshold": 150},
        "livenessProbe": probe(alive, 10),
        "readinessProbe": probe(ready, 10),
    }


def ports_and_probes(port: int) -> Manifest:
    """Returns the ports and probes of a node agent's container, which serves /metrics and /healthz on the port."""
    return {"ports": [{"name": METRICS_PORT, "containerPort": port}], **probes("/healthz", "/healthz")}


def pod_template(
    agent: Agent,
    *,
    container: Manifest | None = None,
    pod: Manifest | None = None,
    beside: Sequence[Manifest] = (),
    volumes: Sequence[Volume] = (),
) -> Manifest:
    """Returns the agent's hardened pod template.

    `container` and `pod` add fields, and do not override the fields of the template. `beside` has the further
    containers of the pod. The agent's container mounts the `volumes` read-only. The pod passes Pod Security
    `restricted`, unless `pod` adds a privilege. The agent's container has no CPU limit, because throttling would only
    delay a run.
    """
    given = pod or {}
    tolerations = [*given.get("tolerations", ()), *(each.declared for each in agent.cluster.agent_tolerations)]
    return {
        "metadata": {"labels": agent.labels},
        "spec": {
            **given,
            **({"tolerations": tolerations} if tolerations else {}),
            **({"priorityClassName": agent.priority_class} if agent.priority_class else {}),
            "serviceAccountName": agent.name,
            "automountServiceAccountToken": bool(agent.rules),
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 5,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "runAsGroup": _USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {**(container or {}), **_agent_container(agent, volumes)},
                *beside,
            ],
            **_unless_empty("volumes", [volume.declared for volume in (*agent.code_volumes, *volumes)]),
        },
    }


def _agent_container(agent: Agent, volumes: Sequence[Volume]) -> Manifest:
    """Returns the container that runs the agent's program."""
    return hardened(
        {
            "name": agent.program,
            "image": agent.cluster.agent_image,
            "command": ["python", "-I", agent.code_path, agent.program],
            "env": _environment(agent),
            "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": f"{agent.memory_mib}Mi"}},
            **_unless_empty("volumeMounts", [volume.mount() for volume in (*agent.code_volumes, *volumes)]),
        },
        agent.capabilities,
    )


def _unless_empty(key: str, values: list[Manifest]) -> Manifest:
    return {key: values} if values else {}


def hardened(container: Manifest, capabilities: Sequence[str] = ()) -> Manifest:
    """Returns the container with a security context without privileges. With `capabilities`, the container runs as root
    with only these capabilities."""
    root: Manifest = {"runAsNonRoot": False, "runAsUser": 0} if capabilities else {}
    return {
        **container,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            **root,
            "capabilities": {"drop": ["ALL"], **({"add": list(capabilities)} if capabilities else {})},
        },
    }


def flag(value: bool) -> str:
    return "true" if value else "false"


def _environment(agent: Agent) -> list[Manifest]:
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "NODE_NAME": "spec.nodeName"}
    values = {"LEDGER_NAMESPACE": agent.cluster.system_namespace, **agent.environment}
    return [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
        *({"name": name, "value": value} for name, value in values.items()),
    ]


def job_spec(agent: Agent, *, deadline_seconds: int, retries: int) -> Manifest:
    return {
        "activeDeadlineSeconds": deadline_seconds,
        "backoffLimit": retries,
        "template": pod_template(agent, pod={"restartPolicy": "Never"}),
    }


def cron_job(agent: Agent, *, deadline_seconds: int = DEADLINE_SECONDS) -> Manifest:
    """Returns the CronJob that runs the agent each minute. A failed run is not retried, because the next run starts
    within a minute.

    Runs may overlap. If a node dies, the Job and the pod of its run still exist for some time. The Job on a dead node
    must not delay the next run.
    """
    job = job_spec(agent, deadline_seconds=deadline_seconds, retries=0)
    spec = {
        "schedule": "* * * * *",
        "concurrencyPolicy": "Allow",
        "startingDeadlineSeconds": 30,
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 3,
        "jobTemplate": {"metadata": {"labels": agent.labels}, "spec": job},
    }
    return agent.declare("batch/v1", "CronJob", spec=spec)
