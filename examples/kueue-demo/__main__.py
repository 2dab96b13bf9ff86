"""Three Jobs of two teams share one GPU: the second Job waits in Kueue, and the urgent Job preempts the first."""

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s


@dataclass(frozen=True)
class Demo:
    """A Job with one GPU. Its `priority` is a WorkloadPriorityClass of the platform's stack."""

    name: str
    team: str
    priority: str
    seconds: int


DEMOS = (
    Demo("low-priority", team="team-a", priority="gpu-batch", seconds=300),  # This Job takes the GPU.
    Demo("second", team="team-b", priority="gpu-batch", seconds=60),  # This Job waits for the GPU.
    Demo("high-priority", team="team-b", priority="gpu-urgent", seconds=60),  # This Job preempts the first Job.
)


def job(demo: Demo, image: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": demo.name,
            "namespace": demo.team,
            "labels": {
                "kueue.x-k8s.io/queue-name": f"{demo.team}-gpu",
                "kueue.x-k8s.io/priority-class": demo.priority,
            },
            # A Job in the queue is healthy, so the update does not wait for the Job.
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": {"backoffLimit": 0, "template": {"spec": pod_spec(demo, image)}},
    }


def pod_spec(demo: Demo, image: str) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "main",
                "image": image,
                "command": ["sh", "-c", f"echo {demo.name} has the GPU; sleep {demo.seconds}"],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }


def main() -> None:
    image = pulumi.Config().require("image")
    before: list[pulumi.Resource] = []
    for demo in DEMOS:
        manifest = job(demo, image)
        opts = pulumi.ResourceOptions(depends_on=before)
        before = [k8s.batch.v1.Job(demo.name, metadata=manifest["metadata"], spec=manifest["spec"], opts=opts)]


main()
