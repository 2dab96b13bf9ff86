"""Tests that agents need little host memory even for many pods, and for pods with large annotations."""

import json
import subprocess
import sys

import pytest

from components.base.agent import Agent
from tests.support.paths import ROOT

# The host memory of the largest agent, in MiB, without the memory for one page of a list and for one event.
OWN_MIB = 32


@pytest.mark.parametrize(
    ("kind", "pods"),
    [("usual", 3000), ("annotated", 150)],
)
def test_no_pods_take_an_agent_over_its_limit(kind: str, pods: int) -> None:
    command = [sys.executable, "-m", "tests.support.large_pods", kind, str(pods)]
    found = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert found["mib"] + OWN_MIB <= Agent.memory_mib, found
