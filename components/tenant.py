"""A tenant: a namespace, the sum of its seats as a quota, and its people."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field, ValidationInfo, field_validator

from components.base.manifest import Manifest, component_type, register
from components.base.spec import Count, DnsLabel, GroupName, Mib, Spec
from tenancy.ledger import PodSecurity
from tenancy.names import POD_SECURITY_ENFORCE, POD_SECURITY_WARN, PROJECT, QUEUE_TENANT, SEATS, Names, labels
from tenancy.quantity import canonical
from tenancy.reach import COUNTED_RESOURCES

_COMPONENT = "tenant"


class Role(StrEnum):
    """Kubernetes' own user-facing roles."""

    VIEW = "view"
    EDIT = "edit"


class TenantSpec(Spec):
    """A tenant is a namespace of its own name."""

    create_namespace: bool = Field(default=True, description="false: the namespace is there already and stays.")
    groups: dict[GroupName, Role] = Field(
        default_factory=dict, description="People: group of the identity provider to role (view, edit)."
    )
    pod_security: PodSecurity = Field(
        default=PodSecurity.BASELINE,
        description="Level of the Pod Security Standards that its pods are held to. A privileged pod owns its node and "
        "every GPU on it.",
    )
    pod_security_reason: str = Field(
        default="",
        max_length=200,
        validate_default=True,
        description="Why its pods need privileged; shown in the seating chart.",
    )

    @field_validator("pod_security_reason")
    @classmethod
    def _is_given_for_privileged(cls, reason: str, info: ValidationInfo) -> str:
        level = info.data.get("pod_security")
        if level is PodSecurity.PRIVILEGED and not reason.strip():
            raise ValueError("is missing though pod_security is privileged: say why, or write baseline")
        if level not in (PodSecurity.PRIVILEGED, None) and reason:
            raise ValueError(f"is for pod_security privileged; remove it (got {reason!r})")
        return reason


class ResidentSpec(Spec):
    """An always-on workload with a seat."""

    tenant: DnsLabel = Field(description="Key of tenants: the namespace it runs in.")
    pool: DnsLabel = Field(description="Key of pools: where its seat is.")
    gpumem_mib: Mib = Field(description="Budget of one replica, on one device.")
    replicas: Count = 1


class UnbudgetedSpec(Spec):
    """A workload that uses a device with neither seat nor gate; on record so that admission lets it pass."""

    tenant: DnsLabel
    pool: DnsLabel
    measured_mib: Mib = Field(description="What it was seen to use; covered by the pool's reserve.")
    gpus: Count = Field(default=1, description="How many nvidia.com/gpu its pods ask for together: the ResourceQuota.")


@dataclass(frozen=True, kw_only=True)
class TenantArgs:
    """`tenant` is its name, and its namespace's. `gpumem_mib` is all that its pods may request together: its seats and
    what its queues may hand out; `gpu_count` the devices that they may name, likewise; `gpus` the nvidia.com/gpu, None
    where nobody counts these."""

    tenant: str
    spec: TenantSpec
    names: Names
    gpumem_mib: int
    gpu_count: int
    gpus: int | None = None
    has_queue: bool


def namespace(tenant: str, args: TenantArgs) -> Manifest:
    """The namespace; the queue label is what makes Kueue manage the Jobs in it."""
    level = str(args.spec.pod_security)
    pod_security = {POD_SECURITY_ENFORCE: level, POD_SECURITY_WARN: level}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": tenant, "labels": labels(_COMPONENT) | pod_security | queue_label(args)},
    }


def queue_label(args: TenantArgs) -> dict[str, str]:
    """The label of a queue tenant's namespace; empty for every other tenant."""
    return {QUEUE_TENANT: "true"} if args.has_queue else {}


def quota(tenant: str, args: TenantArgs) -> Manifest:
    """The ResourceQuota. A tenant with nothing gets "0", so that nobody there can take a seat.

    No LimitRange stands next to it: a maximum of gpumem per Container is also the default of every container, and one
    per Pod refuses every pod without gpumem (plugin/pkg/admission/limitranger). The admission policy caps a pod.
    """
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": SEATS, "namespace": tenant, "labels": labels(_COMPONENT)},
        "spec": {
            "hard": {
                args.names.requests_gpumem: canonical(args.gpumem_mib),
                args.names.requests_gpu_count: canonical(args.gpu_count),
                **_counted(args.gpus),
            }
        },
    }


def _counted(gpus: int | None) -> dict[str, str]:
    return {} if gpus is None else {f"requests.{gpu}": canonical(gpus) for gpu in COUNTED_RESOURCES}


def role_binding(tenant: str, role: Role, groups: Iterable[str]) -> Manifest:
    """Binds people to a ClusterRole within the tenant. One object a role, since a roleRef is immutable."""
    api_group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{api_group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{PROJECT}-{role}", "namespace": tenant, "labels": labels(_COMPONENT)},
        "roleRef": {"apiGroup": api_group, "kind": "ClusterRole", "name": str(role)},
        "subjects": [{"apiGroup": api_group, "kind": "Group", "name": group} for group in groups],
    }


def groups_by_role(groups: Mapping[str, Role]) -> dict[Role, list[str]]:
    """The groups of each role that somebody has, sorted."""
    return {role: sorted(g for g, r in groups.items() if r is role) for role in Role if role in groups.values()}


class Tenant(pulumi.ComponentResource):
    """Declares a tenant: its namespace, its quota, and the roles of its people."""

    namespace: pulumi.Output[str]

    def __init__(self, name: str, args: TenantArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        props = {"spec": args.spec.model_dump(mode="json"), "gpumemMib": args.gpumem_mib, "hasQueue": args.has_queue}
        super().__init__(component_type("Tenant"), name, props, opts)
        before = self._namespace(name, args)
        capped = register(quota(args.tenant, args), f"{name}-quota", parent=self, depends_on=before)
        for role, groups in groups_by_role(args.spec.groups).items():
            register(role_binding(args.tenant, role, groups), f"{name}-{role}", parent=self, depends_on=before)
        self.namespace = capped.urn.apply(lambda _: args.tenant)
        self.register_outputs({"namespace": self.namespace})

    def _namespace(self, name: str, args: TenantArgs) -> list[pulumi.Resource]:
        """The namespace, or the label on one that is there already; nothing where that needs no label."""
        if args.spec.create_namespace:
            return [register(namespace(args.tenant, args), f"{name}-namespace", parent=self)]
        if not args.has_queue:
            return []
        metadata = {"name": args.tenant, "labels": queue_label(args)}
        opts = pulumi.ResourceOptions(parent=self)
        return [k8s.core.v1.NamespacePatch(f"{name}-namespace-label", metadata=metadata, opts=opts)]
