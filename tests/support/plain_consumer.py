"""Declares the same objects as examples/consumer, without our package. Tests add mistakes to this program."""

from typing import Any

import pulumi
import pulumi_kubernetes as k8s


def seat(config: pulumi.Config) -> pulumi.Output[dict[str, Any]]:
    platform, resident = config.get("platform"), config.require("resident")
    if not platform:
        return pulumi.Output.from_input(config.require_object("stanza"))
    return pulumi.StackReference(platform).require_output("residents").apply(lambda residents: residents[resident])


def pod_spec(image: str, seat: pulumi.Output[dict[str, Any]]) -> dict[str, Any]:
    # On a shared device, a request for one nvidia.com/gpu asks for one time slice.
    resources = seat.apply(
        lambda seat: {name: {**amounts, "nvidia.com/gpu": "1"} for name, amounts in seat["resources"].items()}
    )
    return {
        "nodeSelector": seat["nodeSelector"],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "main",
                "image": image,
                "command": ["sleep", "infinity"],  # Replace this image by the image of your application.
                "resources": resources,
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }


def main() -> None:
    config = pulumi.Config()
    resident, ours = config.require("resident"), seat(config)
    labels = {"app.kubernetes.io/name": resident}
    k8s.apps.v1.Deployment(
        resident,
        metadata={"name": resident, "namespace": ours["namespace"], "labels": labels},
        spec={
            "replicas": 1,
            "selector": {"matchLabels": labels},
            # A rolling update would create another pod, which gets no seat.
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(config.require("image"), ours)},
        },
    )


main()
