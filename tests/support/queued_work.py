"""Makes a workload of each kind that Kueue queues. Each workload requests GPUs."""

from typing import Any

from tenancy.frameworks import FRAMEWORKS, FrameworkName
from tenancy.names import GPU, KUEUE_QUEUE_LABEL

Manifest = dict[str, Any]
IMAGE = "busybox:1.37.0"
VERSIONS = {
    FrameworkName.JOB: "batch/v1",
    FrameworkName.JOBSET: "jobset.x-k8s.io/v1alpha2",
    FrameworkName.LEADER_WORKER_SET: "leaderworkerset.x-k8s.io/v1",
    FrameworkName.RAY_JOB: "ray.io/v1",
    FrameworkName.RAY_CLUSTER: "ray.io/v1",
    FrameworkName.TRAIN_JOB: "trainer.kubeflow.org/v1alpha1",
    FrameworkName.MPI_JOB: "kubeflow.org/v2beta1",
    FrameworkName.POD: "v1",
    FrameworkName.DEPLOYMENT: "apps/v1",
    FrameworkName.STATEFUL_SET: "apps/v1",
}
RUNTIME = "torch"


def path(framework: FrameworkName, name: str = "") -> str:
    version, resource = VERSIONS[framework], FRAMEWORKS[framework].resource
    group = "/api/v1" if version == "v1" else f"/apis/{version}"
    return f"{group}/namespaces/team-a/{resource}{f'/{name}' if name else ''}"


def template(gpus: int, labels: dict[str, str] | None = None, **spec: Any) -> Manifest:
    resources = {"limits": {GPU: str(gpus)}} if gpus else {}
    container = {"name": "main", "image": IMAGE, "resources": resources}
    return {"metadata": {"labels": labels or {}}, "spec": {"containers": [container], **spec}}


def work(framework: FrameworkName, *, name: str = "work", queue: str | None = "team-a-gpu", gpus: int = 1) -> Manifest:
    labels = {KUEUE_QUEUE_LABEL: queue} if queue else {}
    body = template(gpus) if framework is FrameworkName.POD else {"spec": _spec(framework, gpus)}
    metadata = {"name": name, "namespace": "team-a", "labels": labels}
    kind = FRAMEWORKS[framework].kind
    return {"apiVersion": VERSIONS[framework], "kind": kind, "metadata": metadata, "spec": body["spec"]}


def _spec(framework: FrameworkName, gpus: int) -> Manifest:
    app = {"app": "work"}
    ends = template(gpus, restartPolicy="Never")
    ray = {
        "headGroupSpec": {"rayStartParams": {}, "template": template(0)},
        "workerGroupSpecs": [
            {
                "groupName": "gpus",
                "replicas": 2,
                "minReplicas": 0,
                "maxReplicas": 2,
                "rayStartParams": {},
                "template": template(gpus),
            }
        ],
    }
    specs: dict[FrameworkName, Manifest] = {
        FrameworkName.JOB: {"parallelism": 2, "completions": 2, "template": ends},
        FrameworkName.JOBSET: {
            "replicatedJobs": [
                {
                    "name": "workers",
                    "replicas": 2,
                    "template": {"spec": {"parallelism": 1, "completions": 1, "template": ends}},
                }
            ]
        },
        FrameworkName.LEADER_WORKER_SET: {
            "replicas": 1,
            "leaderWorkerTemplate": {"size": 3, "leaderTemplate": template(0), "workerTemplate": template(gpus)},
        },
        FrameworkName.RAY_CLUSTER: ray,
        FrameworkName.RAY_JOB: {"entrypoint": "true", "shutdownAfterJobFinishes": True, "rayClusterSpec": ray},
        FrameworkName.TRAIN_JOB: {
            "runtimeRef": {"name": RUNTIME},
            "trainer": {"numNodes": 2, "resourcesPerNode": {"limits": {GPU: str(gpus)}}},
        },
        FrameworkName.MPI_JOB: {
            "runPolicy": {},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": template(0, restartPolicy="Never")},
                "Worker": {"replicas": 2, "template": template(gpus)},
            },
        },
        FrameworkName.DEPLOYMENT: {
            "replicas": 2,
            "selector": {"matchLabels": app},
            "template": template(gpus, app),
        },
        FrameworkName.STATEFUL_SET: {
            "replicas": 2,
            "serviceName": "work",
            "selector": {"matchLabels": app},
            "template": template(gpus, app),
        },
    }
    return specs[framework]
