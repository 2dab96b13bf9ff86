"""An agent's memory stays small while a tenant makes pods as large as the API server accepts."""

import json
import subprocess
import sys

import pytest

from components.base.agent import Agent
from tests.support.paths import ROOT

# The largest agents hold this much more than a page and an event: a pod list, readings, NVML's bindings.
OWN_MIB = 32


@pytest.mark.parametrize(
    ("kind", "pods"),
    [("usual", 3000), ("annotated", 150), ("wide", 150), ("labelled", 6), ("escaped", 6), ("dense", 4)],
)
def test_no_pods_take_an_agent_over_its_limit(kind: str, pods: int) -> None:
    command = [sys.executable, "-m", "tests.support.hostile", kind, str(pods)]
    found = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert found["mib"] + OWN_MIB <= Agent.memory_mib, found
