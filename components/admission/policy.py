"""Registers an admission policy together with its binding."""

from collections.abc import Sequence

import pulumi

from components.base.manifest import Manifest, register
from tenancy.admission.policy import MUTATING, MutatingApi, binding
from tenancy.choices import Mode


def put_into_force(
    policy: Manifest,
    name: str,
    *,
    parent: pulumi.Resource,
    depends_on: Sequence[pulumi.Resource] = (),
    mode: Mode = Mode.ENFORCE,
    stamped: bool = False,
) -> pulumi.Resource:
    """Registers the policy and its binding. Returns the object that was registered last.

    In the mode observe, the binding of a policy that changes pods is left out, so pods stay unchanged. A policy with
    `stamped` judges fields that our mutating policies add. In the mode observe, the stack also leaves out the binding
    of a policy with `stamped`.
    """
    group, _, version = policy["apiVersion"].partition("/")
    others = [f"{group}/{each}" for each in MutatingApi if each != version] if policy["kind"] == MUTATING else ()
    declared = register(policy, name, parent=parent, depends_on=depends_on, other_versions=others)
    if mode is Mode.OBSERVE and (stamped or policy["kind"] == MUTATING):
        return declared
    bound = binding(policy, mode)
    return register(bound, f"{name}-binding", parent=parent, depends_on=[declared], other_versions=others)
