"""Runs a policy pack that reads nothing. No pack can cost less."""

from pulumi_policy import EnforcementLevel, PolicyPack, StackValidationPolicy

PolicyPack(
    "empty",
    [StackValidationPolicy("nothing", "Nothing is looked at.", lambda args, report: None, EnforcementLevel.MANDATORY)],
)
