"""The roles for users of `kubectl gpumem` (docs/reference/gpumem.md). The roles of readers give only rights to read.

Only operators may read the pods of all tenants.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pulumi
from pydantic import Field

from components.base.identity import PolicyRule, RoleRef, binding_manifest, group_subject, role_manifest
from components.base.manifest import Manifest, component_type, register
from components.base.spec import GroupName, Spec
from tenancy.names import (
    GATE,
    KUEUE_GROUP,
    LEDGER,
    OPERATOR,
    RESOURCE_GROUP,
    VIEWER,
    WATCHDOG,
    journal,
    labels,
)

_LABELS = labels("readers")
_READS = ("get", "list")
_VIEWER_RULES = (
    PolicyRule("", ("configmaps",), ("get",), resource_names=(LEDGER,)),
    PolicyRule("", ("nodes",), _READS),
    PolicyRule(RESOURCE_GROUP, ("resourceslices",), _READS),
    PolicyRule(KUEUE_GROUP, ("clusterqueues",), _READS),
)
_OPERATOR_RULES = (
    *_VIEWER_RULES,
    PolicyRule("", ("configmaps",), ("get",), resource_names=(journal(GATE), journal(WATCHDOG))),
    PolicyRule("", ("pods", "events"), _READS),
    PolicyRule("apps", ("daemonsets", "deployments", "replicasets", "statefulsets"), _READS),
    PolicyRule("batch", ("cronjobs", "jobs"), _READS),
    PolicyRule(KUEUE_GROUP, ("workloads",), _READS),
)
# Users connect to the exporters through the API server's proxy, or with a port forward.
_EXPORTER_RULES = (
    PolicyRule("", ("pods/proxy",), ("get",)),
    PolicyRule("", ("pods/portforward",), ("create", "get")),
)


class ReadersSpec(Spec):
    """Groups of the identity provider that may use kubectl gpumem."""

    viewers: list[GroupName] = Field(
        default_factory=list,
        description="Groups that see devices, promises and the names of all seats, but no pods of other tenants.",
        examples=[["everybody"]],
    )
    operators: list[GroupName] = Field(
        default_factory=list,
        description="Groups that see every pod, and the exporters' measurements.",
        examples=[["on-call"]],
    )


@dataclass(frozen=True, kw_only=True)
class ReadersArgs:
    """Holds the arguments. `exporters` is the namespace of the exporters, or None without exporters."""

    spec: ReadersSpec
    exporters: str | None


def viewer_role() -> Manifest:
    """Returns the role with the right to read the ledger, nodes and devices. Other roles of a viewer decide which pods
    the viewer may read."""
    return role_manifest(RoleRef(VIEWER), _LABELS, _VIEWER_RULES)


def operator_role() -> Manifest:
    """Returns the role with the rights of a viewer and the right to read all workloads."""
    return role_manifest(RoleRef(OPERATOR), _LABELS, _OPERATOR_RULES)


def exporters_role(namespace: str) -> Manifest:
    return role_manifest(RoleRef(OPERATOR, namespace), _LABELS, _EXPORTER_RULES)


def binding(role: str, groups: Iterable[str], namespace: str | None = None) -> Manifest:
    return binding_manifest(role, _LABELS, RoleRef(role, namespace), [*map(group_subject, sorted(set(groups)))])


class Readers(pulumi.ComponentResource):
    """The roles for viewers and operators, and their bindings to the groups."""

    def __init__(self, name: str, args: ReadersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Readers"), name, args.spec.model_dump(mode="json"), opts)
        self._declare(f"{name}-viewers", viewer_role(), args.spec.viewers)
        self._declare(f"{name}-operators", operator_role(), args.spec.operators)
        if args.exporters is not None:
            self._declare(f"{name}-exporters", exporters_role(args.exporters), args.spec.operators)
        self.register_outputs({})

    def _declare(self, name: str, role: Manifest, groups: list[str]) -> None:
        made = register(role, f"{name}-role", parent=self)
        if groups:
            bound = binding(role["metadata"]["name"], groups, role["metadata"].get("namespace"))
            register(bound, f"{name}-binding", parent=self, depends_on=[made])
