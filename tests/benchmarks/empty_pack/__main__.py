"""A policy pack that reads nothing. Its cost is the least cost of any pack."""

from pulumi_policy import EnforcementLevel, PolicyPack, StackValidationPolicy

PolicyPack(
    "empty",
    [StackValidationPolicy("nothing", "Nothing is looked at.", lambda args, report: None, EnforcementLevel.MANDATORY)],
)
