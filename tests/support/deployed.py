"""Gives a test the platform's stack in the state after `pulumi up`."""

import json
from collections.abc import Mapping
from typing import Any

from tests.support.workspace import Workspace

_URN = "urn:pulumi:prod::gpu-tenancy::pulumi:pulumi:Stack::gpu-tenancy-prod"


def import_platform(space: Workspace, outputs: Mapping[str, Any]) -> None:
    stack = {"urn": _URN, "custom": False, "type": "pulumi:pulumi:Stack", "outputs": outputs}
    manifest = {"time": "2026-01-01T00:00:00Z", "magic": "", "version": ""}
    state = space.folder / "platform.json"
    state.write_text(json.dumps({"version": 3, "deployment": {"manifest": manifest, "resources": [stack]}}))
    for command in (("select", "--create", "prod"), ("import", "--stack", "prod", "--file", str(state))):
        outcome = space.pulumi("stack", *command, cwd=space.project)
        assert outcome.code == 0, outcome.text
