"""What all agents share: one hardened pod, run by a CronJob each minute or by whatever its component declares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.base.identity import IdentityArgs, PolicyRule, RoleRef
from components.base.manifest import Manifest
from components.base.system import ClusterSpec
from components.base.zipapp import Zipapp
from tenancy import names

# A run is a loop inside its minute: its completion is the heartbeat, so it must end before the deadline kills it. A pod
# starts within 2 to 10 seconds of the minute, and the last pass needs its own time.
RUN_SECONDS = 45
DEADLINE_SECONDS = 58

# Of a container that Prometheus scrapes.
METRICS_PORT = "metrics"

_USER = 65532  # "nonroot" of the distroless images: no image in use gives it a home, a shell or a file
_CODE_VOLUME = "code"


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A volume of the pod, and where a container sees it; `source` is what the API takes next to the name."""

    name: str
    path: str
    source: Mapping[str, Any]

    @property
    def declared(self) -> Manifest:
        return {"name": self.name, **self.source}

    def mount(self, *, read_only: bool = True) -> Manifest:
        return {"name": self.name, "mountPath": self.path} | ({"readOnly": True} if read_only else {})


@dataclass(frozen=True, kw_only=True)
class Agent:
    """One program of the zipapp in a namespace, under an account of its own name, with its own variables and rules.

    With `capabilities` it runs as root and has no others: Kubernetes gives them to no other user (KEP-2763).
    """

    program: str
    name: str
    namespace: str
    cluster: ClusterSpec
    code: Zipapp
    environment: Mapping[str, str]
    rules: tuple[PolicyRule, ...]
    dry_run: bool
    roles: tuple[RoleRef, ...] = ()
    memory_mib: int = 128
    capabilities: tuple[str, ...] = ()
    priority_class: str = names.CLUSTER_CRITICAL

    @property
    def labels(self) -> dict[str, str]:
        return names.labels(self.program, self.name)

    @property
    def metadata(self) -> Manifest:
        return {"name": self.name, "namespace": self.namespace, "labels": self.labels}

    @property
    def identity(self) -> IdentityArgs:
        return IdentityArgs(
            account=self.name,
            namespace=self.namespace,
            component=self.program,
            rules=self.rules,
            roles=self.roles,
        )


def serving(port: int) -> Manifest:
    """What a node agent's container adds, which serves /metrics and /healthz on that port."""
    probe = {"httpGet": {"path": "/healthz", "port": METRICS_PORT}, "periodSeconds": 10, "timeoutSeconds": 5}
    return {
        "ports": [{"name": METRICS_PORT, "containerPort": port}],
        "livenessProbe": probe,
        "readinessProbe": probe,
    }


def pod_template(
    agent: Agent,
    *,
    container: Manifest | None = None,
    pod: Manifest | None = None,
    beside: Sequence[Manifest] = (),
    volumes: Sequence[Volume] = (),
) -> Manifest:
    """The hardened pod. `container` and `pod` add fields, for what one agent alone needs; they override none. `beside`
    are further containers; `volumes` are the pod's, which the agent's container may read.

    It passes Pod Security `restricted`, unless `pod` says otherwise. There is no CPU limit: throttling would only make
    a run late. No tenant preempts it: an agent that is gone protects nobody.
    """
    given = pod or {}
    tolerations = [*given.get("tolerations", ()), *(each.declared for each in agent.cluster.agent_tolerations)]
    return {
        "metadata": {"labels": agent.labels},
        "spec": {
            **given,
            **({"tolerations": tolerations} if tolerations else {}),
            "priorityClassName": agent.priority_class,
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
                {**(container or {}), **agent_container(agent, [volume.mount() for volume in volumes])},
                *beside,
            ],
            "volumes": [
                {"name": _CODE_VOLUME, "configMap": {"name": agent.code.config_map, "defaultMode": 0o444}},
                *(volume.declared for volume in volumes),
            ],
        },
    }


def agent_container(agent: Agent, mounts: Sequence[Manifest] = ()) -> Manifest:
    """The container that runs the agent's program, with the code and `mounts`."""
    return hardened(
        {
            "name": agent.program,
            "image": agent.cluster.agent_image,
            "command": ["python", "-I", f"{names.AGENTS_DIRECTORY}/{names.AGENTS_KEY}", agent.program],
            "env": _environment(agent),
            "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": f"{agent.memory_mib}Mi"}},
            "volumeMounts": [{"name": _CODE_VOLUME, "mountPath": names.AGENTS_DIRECTORY, "readOnly": True}, *mounts],
        },
        agent.capabilities,
    )


def hardened(container: Manifest, capabilities: Sequence[str] = ()) -> Manifest:
    """The container without any privilege, as Pod Security `restricted` and our own policy pack want it; or as root
    with these capabilities alone."""
    return {
        **container,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            **_privileges(capabilities),
        },
    }


def _privileges(capabilities: Sequence[str]) -> Manifest:
    if not capabilities:
        return {"capabilities": {"drop": ["ALL"]}}
    return {
        "runAsNonRoot": False,
        "runAsUser": 0,
        "capabilities": {"drop": ["ALL"], "add": list(capabilities)},
    }


def flag(value: bool) -> str:
    """A switch in an agent's environment."""
    return "true" if value else "false"


def _environment(agent: Agent) -> list[Manifest]:
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "NODE_NAME": "spec.nodeName"}
    values = {
        "LEDGER_NAMESPACE": agent.cluster.system_namespace,
        "DRY_RUN": flag(agent.dry_run),
        **agent.environment,
    }
    return [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
        *({"name": name, "value": value} for name, value in values.items()),
    ]


def job_spec(agent: Agent, *, deadline_seconds: int, retries: int) -> Manifest:
    """A run of the agent that ends by itself, or by its deadline."""
    return {
        "activeDeadlineSeconds": deadline_seconds,
        "backoffLimit": retries,
        "template": pod_template(agent, pod={"restartPolicy": "Never"}),
    }


def cron_job(agent: Agent) -> Manifest:
    """The agent each minute. A failed run is not repeated: the next minute is its retry.

    A run ends by its Job's deadline, before the next begins, but for one on a node that died: its pod stays, and so
    does its Job. That must not hold up the next one, nor may the next one end a run that is about to succeed.
    """
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": agent.metadata,
        "spec": {
            "schedule": "* * * * *",
            "concurrencyPolicy": "Allow",
            "startingDeadlineSeconds": 30,
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {
                "metadata": {"labels": agent.labels},
                "spec": job_spec(agent, deadline_seconds=DEADLINE_SECONDS, retries=0),
            },
        },
    }
