"""The identity of an agent: its ServiceAccount, and the least roles that its rules need."""

from dataclasses import dataclass

import pulumi

from components.base.manifest import Manifest, component_type, register
from tenancy.names import labels

_RBAC_API = "rbac.authorization.k8s.io"


@dataclass(frozen=True, kw_only=True)
class PolicyRule:
    """What an account may do; in the whole cluster where `namespace` is None. Never a wildcard.

    What each agent gets stands here, next to the agent, and again in policy/rules/rbac.py, on purpose: that list judges
    this one. Were it derived from it, a right too many would allow itself.
    """

    api_groups: tuple[str, ...] = ("",)
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    resource_names: tuple[str, ...] = ()
    namespace: str | None = None


def events_rule(namespace: str | None = None) -> PolicyRule:
    """What an agent needs to record Events."""
    return PolicyRule(api_groups=("events.k8s.io",), resources=("events",), verbs=("create",), namespace=namespace)


@dataclass(frozen=True)
class RoleRef:
    """A role by its name: a ClusterRole where `namespace` is None."""

    name: str
    namespace: str | None = None

    @property
    def kind(self) -> str:
        return "ClusterRole" if self.namespace is None else "Role"


@dataclass(frozen=True, kw_only=True)
class IdentityArgs:
    """`account` is the name of the ServiceAccount in `namespace`, and of every role and binding of its rules. `roles`
    are further ones that it gets, which Kubernetes brings."""

    account: str
    namespace: str
    component: str
    rules: tuple[PolicyRule, ...]
    roles: tuple[RoleRef, ...] = ()


def service_account(args: IdentityArgs) -> Manifest:
    """Mounts no token by itself: only a pod that asks for it gets one."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": args.account, "namespace": args.namespace, "labels": labels(args.component, args.account)},
        "automountServiceAccountToken": False,
    }


def role(args: IdentityArgs, namespace: str | None) -> Manifest:
    """The rules for a namespace as a Role; those for the cluster (None) as a ClusterRole."""
    return {
        "apiVersion": f"{_RBAC_API}/v1",
        "kind": "ClusterRole" if namespace is None else "Role",
        "metadata": _metadata(args, namespace),
        "rules": [_policy_rule(rule) for rule in args.rules if rule.namespace == namespace],
    }


def binding(args: IdentityArgs, namespace: str | None) -> Manifest:
    """Gives the account the role of the same name and reach."""
    return _binding(args, args.account, RoleRef(args.account, namespace))


def built_in_binding(args: IdentityArgs, role: RoleRef) -> Manifest:
    """Gives the account a role that Kubernetes brings."""
    return _binding(args, f"{args.account}:{role.name}", role)


def _binding(args: IdentityArgs, name: str, role: RoleRef) -> Manifest:
    return {
        "apiVersion": f"{_RBAC_API}/v1",
        "kind": f"{role.kind}Binding",
        "metadata": _metadata(args, role.namespace) | {"name": name},
        "roleRef": {"apiGroup": _RBAC_API, "kind": role.kind, "name": role.name},
        "subjects": [{"kind": "ServiceAccount", "name": args.account, "namespace": args.namespace}],
    }


def _metadata(args: IdentityArgs, namespace: str | None) -> Manifest:
    metadata: Manifest = {"name": args.account, "labels": labels(args.component, args.account)}
    return metadata if namespace is None else {**metadata, "namespace": namespace}


def _policy_rule(rule: PolicyRule) -> Manifest:
    names = {"resourceNames": list(rule.resource_names)} if rule.resource_names else {}
    return {
        "apiGroups": list(rule.api_groups),
        "resources": list(rule.resources),
        "verbs": list(rule.verbs),
    } | names


class Identity(pulumi.ComponentResource):
    """A ServiceAccount with its roles and bindings. What runs under it depends on it."""

    account: pulumi.Output[str]

    def __init__(self, name: str, args: IdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Identity"), name, {"account": args.account, "namespace": args.namespace}, opts)
        account = register(service_account(args), f"{name}-account", parent=self)
        for namespace in dict.fromkeys(rule.namespace for rule in args.rules):
            reach = namespace or "cluster"
            granted = register(role(args, namespace), f"{name}-{reach}-role", parent=self)
            register(binding(args, namespace), f"{name}-{reach}-binding", parent=self, depends_on=[account, granted])
        for ref in args.roles:
            short = ref.name.rpartition(":")[2]
            register(built_in_binding(args, ref), f"{name}-{short}-binding", parent=self, depends_on=[account])
        self.account = account.urn.apply(lambda _: args.account)
        self.register_outputs({"account": self.account})
