"""Admission: the fields that the API server writes into pods, and the pods that the API server denies."""

from dataclasses import dataclass

import pulumi
from pydantic import Field

from components.admission.policy import put_into_force
from components.base.manifest import component_type, register
from components.base.spec import DnsLabel, ObjectName, PriorityKey, Spec
from tenancy import policy_names
from tenancy.admission.namespaces import exemption
from tenancy.admission.parts import AdmissionRules, policies
from tenancy.admission.policy import MutatingApi, served_as
from tenancy.choices import Mode
from tenancy.names import EXEMPT_BY_NAME

# The validating policies with `stamped` judge the fields that the mutating policies add. Without the mutating policies,
# the stamped policies would warn about every pod with a GPU.
_AFTER_STAMPS = (policy_names.DEVICE_PLACED, policy_names.DEVICE_CAPPED)


class AdmissionSpec(Spec):
    """Admission policies, with which the API server changes and denies pods. Needs Kubernetes 1.36 or later, or
    mutating_api: v1beta1."""

    mode: Mode | None = Field(
        default=None,
        description="Mode of only this part of the stack: observe or enforce. Default: the stack's mode.",
        examples=["enforce"],
    )
    gpu_priority: PriorityKey = Field(
        description="Key of priorities: the PriorityClass that admission sets on every pod that asks for a device."
    )
    tenant_priorities: dict[DnsLabel, DnsLabel] = Field(
        default_factory=dict,
        description="Maps a key of tenants to a key of priorities: the PriorityClass that admission sets on the "
        "tenant's GPU pods instead of gpu_priority.",
        examples=[{"batch": "gpu-later"}],
    )
    exempt_namespaces: list[DnsLabel] = Field(
        default_factory=list,
        description="Namespaces of the driver, the device plugin and similar programs, such as gpu-operator. The "
        "stack labels exempt namespaces. Our admission policies admit every pod in exempt namespaces without a "
        "change. kube-system is always exempt.",
        examples=[["gpu-operator"]],
    )
    exempt_priorities: list[ObjectName] = Field(
        default_factory=list,
        description="PriorityClasses above gpu_priority that other programs declare, such as a storage system's. "
        "Only pods in exempt namespaces may use an exempt PriorityClass, because such pods preempt pods with a seat.",
        examples=[["storage-critical"]],
    )
    mutating_api: MutatingApi = Field(
        default=MutatingApi.V1,
        description="Version of the API for the policies that change pods: v1 for Kubernetes 1.36 and later; v1beta1 "
        "for Kubernetes 1.34 and 1.35, with the feature gate MutatingAdmissionPolicy.",
    )
    device_classes: list[ObjectName] = Field(
        default_factory=list,
        description="DeviceClasses without GPUs for which pods may have ResourceClaims.",
        examples=[["sriov.example.com"]],
    )


@dataclass(frozen=True, kw_only=True)
class AdmissionArgs:
    """Holds the arguments of the component Admission. `rules` has what the policies enforce."""

    spec: AdmissionSpec
    rules: AdmissionRules
    mode: Mode = Mode.ENFORCE


class Admission(pulumi.ComponentResource):
    """Creates the admission policies and their bindings."""

    def __init__(self, name: str, args: AdmissionArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Admission"), name, {"spec": args.spec.model_dump(mode="json")}, opts)
        # The stack sets the labels of exempt namespaces before the policies. If the stack created the policies first, a
        # policy could deny pods of an exempt namespace without its label.
        exempt = [
            register(exemption(namespace), f"{name}-exempt-{namespace}", parent=self)
            for namespace in args.spec.exempt_namespaces
            if namespace != EXEMPT_BY_NAME
        ]
        for policy in served_as(args.spec.mutating_api, policies(args.rules)):
            own = policy["metadata"]["name"]
            mode = Mode.ENFORCE if own in policy_names.GUARDS else args.mode
            stamped = own in _AFTER_STAMPS
            put_into_force(policy, f"{name}-{own}", parent=self, depends_on=exempt, mode=mode, stamped=stamped)
        self.register_outputs({})
