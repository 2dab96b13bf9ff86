"""Tests that a program without GPUs is never refused. Some programs have values that are unknown in a preview."""

import copy
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from policy.rule import an_object
from tenancy.host_memory.pool import HostMemoryPools
from tests.support.consumers import FULL
from tests.support.graphs import UNKNOWN, Manifest, Program, judge
from tests.support.memory_pools import NODE_4

CONFIG = {"ledger": FULL.to_data(), "memory_pools": HostMemoryPools(pools=(NODE_4,)).to_data()}
TENANTS = {*FULL.tenants_by_name}


def pod(*, env: object = "postgres://db", **spec: Any) -> Manifest:
    main = {
        "name": "main",
        "image": "nginx:latest",
        "env": [{"name": "DATABASE", "value": env}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}},
        **spec.pop("main", {}),
    }
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [main], **spec}}


def workload(kind: str, namespace: object = "web", *, template: object = None, **spec: Any) -> Manifest:
    body = spec | {"template": pod() if template is None else template}
    return an_object("apps/v1", kind, "x", str(namespace), spec=body)


def deployment(namespace: object = "web", **spec: Any) -> Manifest:
    return workload("Deployment", namespace, **spec)


def custom(api_version: str, kind: str, namespace: str | None = "web", **spec: Any) -> Manifest:
    return an_object(api_version, kind, "x", namespace, spec=spec)


def release(namespace: str, **values: Any) -> Manifest:
    return {
        "apiVersion": "helm.sh/v3",
        "kind": "Release",
        "name": "x",
        "namespace": namespace,
        "chart": "x",
        "values": values,
    }


HOST: dict[str, Any] = {
    "hostPID": True,
    "hostNetwork": True,
    "volumes": [{"name": "root", "hostPath": {"path": "/proc"}}],
    "tolerations": [{"operator": "Exists"}],
}
HELM_WITH_OUTPUT = {"source": {"chart": "x", "helm": {"values": UNKNOWN}}, "destination": {"namespace": "web"}}
JOB_OF_ARGO = {"entrypoint": "main", "templates": [{"name": "main", "container": {"image": "busybox"}}]}

PROGRAMS: dict[str, Program] = {
    "a web server": {"x": deployment()},
    "a web server of a tenant": {"x": deployment("immich")},
    "a web server of a queue tenant": {"x": deployment("team-a")},
    "a web server beside an on-demand workload": {"x": deployment("tts")},
    "a database": {"x": workload("StatefulSet", serviceName="db", replicas=3)},
    "node-exporter": {"x": workload("DaemonSet", "monitoring", template=pod(**HOST))},
    "promtail": {"x": workload("DaemonSet", "logging", template=pod(main={"securityContext": {"privileged": True}}))},
    "a nightly backup": {
        "x": an_object("batch/v1", "CronJob", "x", "web", spec={"jobTemplate": {"spec": {"template": pod()}}})
    },
    "a Job of a queue tenant": {"x": an_object("batch/v1", "Job", "x", "team-a", spec={"template": pod()})},
    "an operator with its kinds": {
        "deployment": deployment("cnpg", template=pod(serviceAccountName="operator")),
        "crd": an_object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "x.example.com", spec={"scope": "x"}),
        "cluster": custom("postgresql.cnpg.io/v1", "Cluster", instances=3, resources={"limits": {"memory": "1Gi"}}),
    },
    "a chart": {"x": release("web", replicas=2, resources={"limits": {"memory": "1Gi"}})},
    "a Certificate": {"x": custom("cert-manager.io/v1", "Certificate", "immich", secretName="tls", dnsNames=["a.b"])},
    "a NodePool without a namespace": {"x": custom("karpenter.sh/v1", "NodePool", None, limits={"cpu": 100})},
    "a CPU RayCluster": {"x": custom("ray.io/v1", "RayCluster", "immich", headGroupSpec={"template": pod()})},
    # These have outputs of other resources in their values.
    "a web server of a tenant with an output": {"x": deployment("immich", template=pod(env=UNKNOWN))},
    "a web server with an unknown image": {"x": deployment("immich", template=pod(main={"image": UNKNOWN}))},
    "a web server with unknown replicas": {"x": deployment("immich", replicas=UNKNOWN)},
    "a web server in a namespace that Pulumi names": {"x": deployment(UNKNOWN)},
    "a host's agent in a namespace that Pulumi names": {"x": workload("DaemonSet", UNKNOWN, template=pod(**HOST))},
    "a web server with unknown nodes": {"x": deployment("immich", template=pod(nodeSelector=UNKNOWN))},
    "a database with unknown volumes": {
        "x": workload("StatefulSet", "immich", volumeClaimTemplates=UNKNOWN, serviceName=UNKNOWN)
    },
    "a Certificate with an unknown spec": {
        "x": an_object("cert-manager.io/v1", "Certificate", "x", "immich", spec=UNKNOWN)
    },
    "an ExternalSecret with an unknown template": {
        "x": custom("external-secrets.io/v1", "ExternalSecret", "immich", target={"template": UNKNOWN}, data=UNKNOWN)
    },
    "an Application of a tenant with unknown values": {
        "x": custom("argoproj.io/v1alpha1", "Application", "immich", **HELM_WITH_OUTPUT)
    },
    "a Workflow with an unknown argument": {
        "x": custom("argoproj.io/v1alpha1", "Workflow", "immich", arguments={"parameters": UNKNOWN}, **JOB_OF_ARGO)
    },
    "a chart of a tenant with unknown values": {"x": release("immich", resources={"limits": UNKNOWN})},
    "a HelmRelease with unknown values": {
        "x": an_object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "x", "immich", spec={"values": UNKNOWN})
    },
    "a chart that is rendered later": {
        "x": {"apiVersion": "helm.sh/v4", "kind": "Chart", "resources": UNKNOWN, "values": UNKNOWN}
    },
    "a ConfigMap and a Secret": {
        "x": an_object("v1", "ConfigMap", UNKNOWN, UNKNOWN, data=UNKNOWN),
        "y": an_object("v1", "Secret", "x", "immich", data=UNKNOWN, stringData=UNKNOWN),
    },
    "a patch of a tenant's Deployment": {
        "x": an_object("apps/v1", "DeploymentPatch", "x", "immich", spec={"replicas": UNKNOWN, "template": pod()})
    },
    "an autoscaler": {
        "x": custom("autoscaling/v2", "HorizontalPodAutoscaler", maxReplicas=UNKNOWN, scaleTargetRef=UNKNOWN),
        "y": custom("keda.sh/v1alpha1", "ScaledObject", maxReplicaCount=UNKNOWN, scaleTargetRef={"name": "x"}),
    },
}


@pytest.mark.no_cover
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_without_gpus_is_not_refused(program: str) -> None:
    assert judge(PROGRAMS[program], CONFIG) == []
    assert judge(PROGRAMS[program]) == []


def paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if key not in ("apiVersion", "kind"):
            yield (*path, key)
            yield from paths(item, (*path, key))


OF_NO_TENANT = [name for name, found in PROGRAMS.items() if not TENANTS & set(re.findall(r"[\w-]+", json.dumps(found)))]


@pytest.mark.parametrize("program", OF_NO_TENANT)
def test_each_value_of_a_program_outside_of_the_tenants_namespaces_may_be_unknown(program: str) -> None:
    every = [(name, path) for name, found in PROGRAMS[program].items() for path in paths(found)]
    chosen = random.Random(47).sample(every, min(len(every), 12))  # noqa: S311 (no secret)
    for name, (*parents, last) in chosen:
        changed = copy.deepcopy(PROGRAMS[program])
        target: Any = changed[name]
        for part in parents:
            target = target[part]
        target[last] = UNKNOWN
        assert judge(changed, CONFIG) == [], (name, parents, last)
