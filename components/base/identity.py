"""The identity of an agent: a ServiceAccount, and roles with the rights that the agent needs."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from components.base.manifest import Manifest, component_type, register
from tenancy.names import labels

RBAC_GROUP = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class PolicyRule:
    """One rule of a Role, or of a ClusterRole if `namespace` is None."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    resource_names: tuple[str, ...] = ()
    namespace: str | None = None

    @property
    def declared(self) -> Manifest:
        names = {"resourceNames": list(self.resource_names)} if self.resource_names else {}
        return {
            "apiGroups": [self.group],
            "resources": list(self.resources),
            "verbs": list(self.verbs),
            **names,
        }


def events_rule(namespace: str | None = None) -> PolicyRule:
    """Returns the right to record Events."""
    return PolicyRule("events.k8s.io", ("events",), ("create",), namespace=namespace)


@dataclass(frozen=True)
class RoleRef:
    """Names a role. If `namespace` is None, the role is a ClusterRole."""

    name: str
    namespace: str | None = None

    @property
    def prefix(self) -> str:
        return "Cluster" if self.namespace is None else ""


def role_manifest(ref: RoleRef, labels: dict[str, str], rules: Sequence[PolicyRule]) -> Manifest:
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": f"{ref.prefix}Role",
        "metadata": _metadata(ref.name, labels, ref.namespace),
        "rules": [rule.declared for rule in rules],
    }


def binding_manifest(name: str, labels: dict[str, str], ref: RoleRef, subjects: Sequence[Manifest]) -> Manifest:
    """Returns a RoleBinding in the role's namespace, or a ClusterRoleBinding for a ClusterRole."""
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": f"{ref.prefix}RoleBinding",
        "metadata": _metadata(name, labels, ref.namespace),
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": f"{ref.prefix}Role", "name": ref.name},
        "subjects": list(subjects),
    }


def group_subject(group: str) -> Manifest:
    return {"apiGroup": RBAC_GROUP, "kind": "Group", "name": group}


def _metadata(name: str, labels: dict[str, str], namespace: str | None) -> Manifest:
    return {"name": name, "labels": labels} | ({} if namespace is None else {"namespace": namespace})


@dataclass(frozen=True, kw_only=True)
class Account:
    """Describes a program's ServiceAccount, called `name`, and its rights. `roles` are roles of Kubernetes that the
    account also gets."""

    program: str
    name: str
    namespace: str
    rules: tuple[PolicyRule, ...]
    roles: tuple[RoleRef, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        return labels(self.program, self.name)

    @property
    def metadata(self) -> Manifest:
        return _metadata(self.name, self.labels, self.namespace)


def service_account(account: Account) -> Manifest:
    """Returns the ServiceAccount. The account's token is mounted only into pods that ask for the token
    (automountServiceAccountToken)."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": account.metadata,
        "automountServiceAccountToken": False,
    }


def role(account: Account, namespace: str | None) -> Manifest:
    """Returns the Role with the account's rules in one namespace, or the ClusterRole if `namespace` is None."""
    rules = [rule for rule in account.rules if rule.namespace == namespace]
    return role_manifest(RoleRef(account.name, namespace), account.labels, rules)


def binding(account: Account, namespace: str | None) -> Manifest:
    """Returns the binding of the account to the role with the account's name."""
    return _binding(account, account.name, RoleRef(account.name, namespace))


def built_in_binding(account: Account, role: RoleRef) -> Manifest:
    """Returns the binding of the account to a built-in role of Kubernetes."""
    return _binding(account, f"{account.name}:{role.name}", role)


def _binding(account: Account, name: str, role: RoleRef) -> Manifest:
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}
    return binding_manifest(name, account.labels, role, [subject])


class Identity(pulumi.ComponentResource):
    """A program's ServiceAccount with its roles and bindings."""

    def __init__(self, name: str, args: Account, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Identity"), name, {"account": args.name, "namespace": args.namespace}, opts)
        account = register(service_account(args), f"{name}-account", parent=self)
        for namespace in dict.fromkeys(rule.namespace for rule in args.rules):
            reach = namespace or "cluster"
            granted = register(role(args, namespace), f"{name}-{reach}-role", parent=self)
            register(binding(args, namespace), f"{name}-{reach}-binding", parent=self, depends_on=[account, granted])
        for ref in args.roles:
            short = ref.name.rpartition(":")[2]
            register(built_in_binding(args, ref), f"{name}-{short}-binding", parent=self, depends_on=[account])
        self.register_outputs({})
