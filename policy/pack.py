"""The pack as Pulumi sees it: one mandatory stack policy.

One, because the SDK reads the whole graph again for every stack policy, which costs more than all rules together.
"""

from pulumi_policy import (
    EnforcementLevel,
    PolicyConfigSchema,
    ReportViolation,
    StackValidationArgs,
    StackValidationPolicy,
)

from policy.graph import Graph
from policy.notes import notes
from policy.rules import violations
from policy.view import objects_of
from tenancy.names import POLICY

_CONFIGURATION = {"ledger": {"type": "object"}, "memory_pools": {"type": "object"}, "stack": {"type": "string"}}


def stack_policy() -> StackValidationPolicy:
    """The policy that judges a program's resource graph."""
    return StackValidationPolicy(
        name=POLICY,
        description="Every promise on a GPU must fit.",
        validate=_validate,
        enforcement_level=EnforcementLevel.MANDATORY,
        config_schema=PolicyConfigSchema(properties=_CONFIGURATION),
        remediation_steps="Each line names the numbers and the key to change.",
    )


def _validate(args: StackValidationArgs, report_violation: ReportViolation) -> None:
    graph = Graph(objects_of(args.resources), args.get_config())
    for note in notes(graph):
        print(note, flush=True)  # the engine shows it under Diagnostics
    for violation in violations(graph):
        report_violation(str(violation), violation.finding.urn)
