"""Runs a policy pack with a single policy that does nothing. Every pack needs at least this pack's time."""

from pulumi_policy import EnforcementLevel, PolicyPack, StackValidationPolicy

PolicyPack(
    "empty",
    [StackValidationPolicy("nothing", "Nothing is looked at.", lambda args, report: None, EnforcementLevel.MANDATORY)],
)
