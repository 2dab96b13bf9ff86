"""Tests that an agent's host memory stays small if a tenant creates the largest pods that the API server accepts."""

import json
import subprocess
import sys

import pytest

from components.base.agent import Agent
from tests.support.paths import ROOT

# The MiB of host memory that the largest agent needs, for instance for its modules and its list of pods. The memory for
# a page of a list and for one event comes on top.
OWN_MIB = 32


@pytest.mark.parametrize(
    ("kind", "pods"),
    [("usual", 3000), ("annotated", 150), ("wide", 150), ("labelled", 6), ("escaped", 6), ("dense", 4)],
)
def test_no_pods_take_an_agent_over_its_limit(kind: str, pods: int) -> None:
    command = [sys.executable, "-m", "tests.support.hostile", kind, str(pods)]
    found = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert found["mib"] + OWN_MIB <= Agent.memory_mib, found
