"""Who may ask `kubectl gpumem` (docs/gpumem.md): reading alone, and of other tenants' pods for operators only."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pulumi
from pydantic import Field

from components.base.manifest import Manifest, component_type, register
from components.base.spec import GroupName, Spec
from tenancy.names import (
    GATE,
    KUEUE_API,
    LEDGER,
    OPERATOR,
    RESOURCE_API,
    VIEWER,
    labels,
    node_agent_namespace,
)

_COMPONENT = "readers"
_API = "rbac.authorization.k8s.io"


class ReadersSpec(Spec):
    """Groups of the identity provider that may read."""

    viewers: list[GroupName] = Field(
        default_factory=list,
        description="They see the devices and what is promised of them, seats by name, but no pods of other tenants.",
    )
    operators: list[GroupName] = Field(
        default_factory=list, description="They see every pod, and what the exporters measure."
    )


@dataclass(frozen=True, kw_only=True)
class ReadersArgs:
    """`measured`: exporters are declared, and with them their namespace."""

    spec: ReadersSpec
    system_namespace: str
    measured: bool


def viewer_role() -> Manifest:
    """The ledger, nodes and their devices. Whose pods a viewer sees is his role's in each namespace to say."""
    return _role(VIEWER, _viewer_rules())


def operator_role() -> Manifest:
    """The same, and what the cluster's workloads are and wait for."""
    rules = [
        *_viewer_rules(),
        _rule("", ("pods", "events"), ("get", "list")),
        _rule("apps", ("deployments", "replicasets", "statefulsets"), ("get", "list")),
        _rule("batch", ("jobs",), ("get", "list")),
        {**_rule("batch", ("cronjobs",), ("get",)), "resourceNames": [GATE]},
        _rule(KUEUE_API.partition("/")[0], ("workloads",), ("get", "list")),
    ]
    return _role(OPERATOR, rules)


def exporters_role(namespace: str) -> Manifest:
    """What the exporters serve: through the API server, or through their kubelets."""
    rules = [_rule("", ("pods/proxy",), ("get",)), _rule("", ("pods/portforward",), ("create", "get"))]
    return _role(OPERATOR, rules, namespace)


def binding(role: str, groups: Iterable[str], namespace: str | None = None) -> Manifest:
    """Gives the groups the role of that name and reach."""
    kind = "ClusterRole" if namespace is None else "Role"
    return {
        "apiVersion": f"{_API}/v1",
        "kind": f"{kind}Binding",
        "metadata": _metadata(role, namespace),
        "roleRef": {"apiGroup": _API, "kind": kind, "name": role},
        "subjects": [{"apiGroup": _API, "kind": "Group", "name": group} for group in sorted(set(groups))],
    }


def _viewer_rules() -> list[Manifest]:
    return [
        {**_rule("", ("configmaps",), ("get",)), "resourceNames": [LEDGER]},
        _rule("", ("nodes",), ("get", "list")),
        _rule(RESOURCE_API.partition("/")[0], ("resourceslices",), ("get", "list")),
    ]


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Manifest:
    return {"apiGroups": [group], "resources": [*resources], "verbs": [*verbs]}


def _role(name: str, rules: Sequence[Manifest], namespace: str | None = None) -> Manifest:
    return {
        "apiVersion": f"{_API}/v1",
        "kind": "ClusterRole" if namespace is None else "Role",
        "metadata": _metadata(name, namespace),
        "rules": [*rules],
    }


def _metadata(name: str, namespace: str | None) -> Manifest:
    metadata: Manifest = {"name": name, "labels": labels(_COMPONENT)}
    return metadata if namespace is None else {**metadata, "namespace": namespace}


class Readers(pulumi.ComponentResource):
    """Declares both roles, and binds those that somebody has."""

    roles: pulumi.Output[list[str]]

    def __init__(self, name: str, args: ReadersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Readers"), name, args.spec.model_dump(mode="json"), opts)
        declared: list[tuple[str, Manifest, str, list[str], str | None]] = [
            ("viewers", viewer_role(), VIEWER, args.spec.viewers, None),
            ("operators", operator_role(), OPERATOR, args.spec.operators, None),
        ]
        if args.measured:
            nodes = node_agent_namespace(args.system_namespace)
            declared.append(("exporters", exporters_role(nodes), OPERATOR, args.spec.operators, nodes))
        roles = []
        for what, manifest, role, groups, namespace in declared:
            made = register(manifest, f"{name}-{what}-role", parent=self)
            roles.append(made)
            if groups:
                register(binding(role, groups, namespace), f"{name}-{what}-binding", parent=self, depends_on=[made])
        self.roles = pulumi.Output.all(*(made.urn for made in roles)).apply(lambda _: [VIEWER, OPERATOR])
        self.register_outputs({"roles": self.roles})
