"""Builds ResourceSlices with the fields of NVIDIA's DRA driver.

Source: cmd/gpu-kubelet-plugin of kubernetes-sigs/dra-driver-nvidia-gpu at 9593204 (v0.5.0).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tenancy.names import NVIDIA_DEVICE_DRIVER
from tenancy.quantity import canonical_mib

Object = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Gpu:
    minor: int = 0
    mib: int = 15360
    product: str = "Tesla T4"
    uuid: str = ""
    shares: str = "disabled"
    taints: tuple[Mapping[str, str], ...] = ()

    def device(self) -> Object:
        device: Object = {
            "name": f"gpu-{self.minor}",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": self.uuid or f"GPU-{self.minor}"},
                "productName": {"string": self.product},
                "brand": {"string": "Nvidia"},
                "architecture": {"string": "Turing"},
                "cudaComputeCapability": {"version": "7.5.0"},
                "driverVersion": {"version": "615.71.9"},
                "cudaDriverVersion": {"version": "13.4.0"},
                "resource.kubernetes.io/pciBusID": {"string": f"0000:{self.minor:02x}:00.0"},
                "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
                "resource.kubernetes.io/numaNode": {"int": 0},
                "addressingMode": {"string": "None"},
            },
            "capacity": {"memory": {"value": canonical_mib(self.mib), **self._policy()}},
        }
        if self.shares != "disabled":
            device["allowMultipleAllocations"] = True
        if self.taints:
            device["taints"] = [dict(taint) for taint in self.taints]
        return device

    def _policy(self) -> Object:
        if self.shares == "disabled":
            return {}
        most = canonical_mib(self.mib)
        default, least = {"memory": (most, "1Mi"), "unlimited": ("0", "0")}[self.shares]
        return {"requestPolicy": {"default": default, "validRange": {"min": least, "max": most, "step": "1Mi"}}}


MIG: Object = {
    "name": "gpu-0-mig-1g5gb-19-0",
    "attributes": {
        "type": {"string": "mig"},
        "uuid": {"string": "MIG-0"},
        "parentUUID": {"string": "GPU-0"},
        "profile": {"string": "1g.5gb"},
    },
    "capacity": {"memory": {"value": "4864Mi"}, "memorySlice0": {"value": "1"}},
}


def nvidia_slice(
    node: str, devices: Iterable[Gpu | Object], *, part: str = "abcde", generation: int = 1, count: int = 1
) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{NVIDIA_DEVICE_DRIVER}-{part}"},
        "spec": {
            "driver": NVIDIA_DEVICE_DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": count},
            "devices": [each.device() if isinstance(each, Gpu) else each for each in devices],
        },
    }
