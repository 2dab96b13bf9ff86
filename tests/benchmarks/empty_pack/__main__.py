"""A pack whose one stack policy looks at nothing: what any gate costs."""

from pulumi_policy import EnforcementLevel, PolicyPack, StackValidationPolicy

PolicyPack(
    "empty",
    [StackValidationPolicy("nothing", "Nothing is looked at.", lambda args, report: None, EnforcementLevel.MANDATORY)],
)
