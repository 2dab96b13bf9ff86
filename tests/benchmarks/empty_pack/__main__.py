"""Runs a policy pack with one policy that does nothing."""

from pulumi_policy import EnforcementLevel, PolicyPack, StackValidationPolicy

PolicyPack(
    "empty",
    [StackValidationPolicy("nothing", "Nothing is looked at.", lambda args, report: None, EnforcementLevel.MANDATORY)],
)
