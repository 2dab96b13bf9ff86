"""The policy pack for Pulumi: one mandatory stack policy that runs all rules.

The pack has only one stack policy, because the SDK reads the whole graph again for each stack policy. The SDK needs
more time to read the graph than all rules together.
"""

from collections.abc import Callable, Mapping

from pulumi_policy import (
    EnforcementLevel,
    PolicyConfigSchema,
    ReportViolation,
    Severity,
    StackValidationArgs,
    StackValidationPolicy,
)

from policy import enforcement
from policy.enforcement import MANDATORY, Level
from policy.graph import Graph
from policy.notes import PREFIX, notes
from policy.rules import RULES, violations
from policy.view import CONTEXT, objects_of, split
from tenancy.decode import DecodeError
from tenancy.names import POLICY

DESCRIPTION = "Every promise on a GPU must fit."
TAGS = ["gpu", "kubernetes", "kueue", "multi-tenancy"]
_CONFIGURATION = {
    "ledger": {"type": "object"},
    CONTEXT: {"type": "string"},
    "memory_pools": {"type": "object"},
    "stack": {"type": "string"},
    enforcement.RULES: enforcement.SCHEMA,
}


def stack_policy() -> StackValidationPolicy:
    """Returns the stack policy that judges a program's resource graph."""
    return StackValidationPolicy(
        name=POLICY,
        display_name="GPU tenancy",
        description=DESCRIPTION,
        validate=_validate,
        enforcement_level=EnforcementLevel.MANDATORY,
        severity=Severity.CRITICAL,
        tags=TAGS,
        config_schema=PolicyConfigSchema(properties=_CONFIGURATION),
        remediation_steps="Each line names the numbers and the key to change.",
    )


def _validate(args: StackValidationArgs, report_violation: ReportViolation) -> None:
    configured = args.get_config()
    here, elsewhere = split(args.resources, configured)
    graph = Graph(objects_of(here), configured, elsewhere=objects_of(elsewhere))
    judge(graph, configured, _print, report_violation)


def _print(line: str) -> None:
    print(line, flush=True)  # The engine shows the notes and the advisory findings under Diagnostics.


def judge(graph: Graph, configured: Mapping[str, object], say: Callable[[str], None], refuse: ReportViolation) -> None:
    """Reports each mandatory finding as a violation, which refuses the update. Prints the notes and the advisory
    findings."""
    try:
        levels = enforcement.enforcement(configured, [rule.id for rule in RULES])
    except DecodeError as error:
        levels = {}
        for problem in error.problems:
            refuse(f"the policy pack's {problem}")
    for note in notes(graph):
        say(note)
    for rule, why in levels.items():
        say(f"{PREFIX}: warning: the rule {rule} is {why}")
    disabled = [rule for rule, each in levels.items() if each.level is Level.DISABLED]
    for violation in violations(graph, without=disabled):
        if violation.is_for_admission:
            say(f"{PREFIX}: warning: {violation}; only admission judges its pods")
        elif levels.get(violation.rule.id, MANDATORY).level is Level.ADVISORY:
            say(f"{PREFIX}: advisory: {violation}")
        else:
            refuse(str(violation), violation.finding.urn)
