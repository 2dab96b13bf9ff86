"""Builds the events that Pulumi's engine writes during a preview."""

import json
from collections.abc import Iterable
from typing import Any

from stacks.preview.events import Events, read
from stacks.preview.report import PreviewOutcome

STACK = "urn:pulumi:lab::gpu-tenancy::pulumi:pulumi:Stack::gpu-tenancy-lab"
Event = dict[str, Any]


def urn(kind: str, name: str) -> str:
    return f"urn:pulumi:lab::gpu-tenancy::gpu-tenancy:components:Tenant$kubernetes:core/v1:{kind}::{name}"


def component(kind: str, name: str) -> str:
    return f"urn:pulumi:lab::gpu-tenancy::gpu-tenancy:components:{kind}::{name}"


def step(op: str, at: str, parent: str = STACK, **given: Any) -> Event:
    state = {"urn": at, "parent": parent}
    states = {"old": state, "new": None} if op.startswith("delete") else {"old": None, "new": state}
    return {"resourcePreEvent": {"metadata": {"op": op, "urn": at, "type": "any", **states, **given}}}


def root(op: str = "same") -> Event:
    return step(op, STACK, parent="")


def said(severity: str, message: str, **given: Any) -> Event:
    prefix = f"{severity}: " if severity in ("warning", "error", "debug") else ""
    return {"diagnosticEvent": {"severity": severity, "message": message, "prefix": prefix, **given}}


def violation(text: str, level: str = "mandatory", pack: str = "gpu-tenancy") -> Event:
    message = f"Every promise on a GPU must fit.\n{text}\n"
    return {"policyEvent": {"policyPackName": pack, "enforcementLevel": level, "message": message}}


def judged(result: str = "passed", pack: str = "gpu-tenancy", policy: str = "gpu-tenancy") -> Event:
    return {"policyAnalyzeStackSummaryEvent": {"policyPackName": pack, result: [policy]}}


def summary(result: str = "succeeded") -> Event:
    return {"summaryEvent": {"result": result}}


def lines(events: Iterable[Event]) -> list[str]:
    return [json.dumps({"sequence": number, **event}) + "\n" for number, event in enumerate(events)]


def events(*given: Event) -> Events:
    return read(lines(given))


def run(*given: Event, code: int = 0, **more: Any) -> PreviewOutcome:
    return PreviewOutcome(stack="lab", events=events(*given), code=code, seconds=1.25, **more)
