"""Tests that tenancy/host_memory/oom.py predicts which process the kernel kills in a memory cgroup."""

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kernel import squeeze
from tests.support.oom_killer import Process, badness_pages, kernel_victim
from tests.support.waiting import eventually

SQUEEZE = squeeze.__file__
LIMIT_MIB = 256
MARGIN_MIB = 6
# INTERPRETER_MIB is the host memory of an idle Python process.
INTERPRETER_MIB, LEAST_MIB = 9, 4
PAGES_PER_MIB = 256
KIB_PER_MIB = 1024
CASES = 48
SWAPPING_MIB = 128

# The test scales the amounts of record 0001 down to LIMIT_MIB.
NODE_GIB, REQUEST_GIB, SAFE_REQUEST_GIB, PEAK_GIB, MOST_GIB = 61, 8, 19.5, 20, 32


@dataclass(frozen=True)
class Member:
    adj: int
    mib: int


@dataclass(frozen=True)
class Squeezed:
    states: list[Process]
    killed: int


def squeezed(group: Path, *members: Member) -> Squeezed:
    """The kernel can choose a second victim before the memory of the first victim is free (MMF_OOM_SKIP, exit_mmap in
    mm/mmap.c).
    """

    def one_killed() -> Any:
        found = run(group, *members)
        return found if len(found["killed"]) == 1 else None

    told = eventually(one_killed)
    states = [state(n, Fraction(p["kib"], KIB_PER_MIB), p["adj"]) for n, p in enumerate(told["states"])]
    last = state(len(members), Fraction(told["left_kib"], KIB_PER_MIB) + INTERPRETER_MIB, 0)
    (killed,) = told["killed"]
    return Squeezed(states=[*states, last], killed=killed)


def run(group: Path, *members: Member) -> Any:
    sizes = json.dumps([(member.adj, member.mib) for member in members])
    program = (sys.executable, "-I", "-S", SQUEEZE, str(group), str(LIMIT_MIB), sizes)
    return json.loads(subprocess.run(program, capture_output=True, check=True).stdout)


def state(position: int, mib: Fraction, adj: int) -> Process:
    return Process(name=str(position), resident_mib=mib, oom_score_adj=adj)


def generated() -> Iterator[list[Member]]:
    chance = random.Random(1)  # noqa: S311
    while True:
        count = chance.randint(2, 4)
        most_mib = LIMIT_MIB // count - 2 * INTERPRETER_MIB
        adjustments = (1000, 999, chance.randint(900, 998), chance.randint(3, 900), chance.randint(3, 900))
        members = [Member(chance.choice(adjustments), chance.randint(LEAST_MIB, most_mib)) for _ in range(count)]
        if lead_mib(members) >= MARGIN_MIB:
            yield members


def lead_mib(members: list[Member]) -> float:
    last = Member(0, LIMIT_MIB - sum(member.mib for member in members))
    scores = sorted(badness_pages(m.mib + INTERPRETER_MIB, m.adj, LIMIT_MIB) for m in [*members, last])
    return (scores[-1] - scores[-2]) / PAGES_PER_MIB


TABLE = list(itertools.islice(generated(), CASES))


@pytest.mark.parametrize("members", TABLE, ids=lambda members: "-".join(f"{m.adj}x{m.mib}" for m in members))
def test_the_kernel_kills_the_predicted_process(group: Path, members: list[Member]) -> None:
    seen = squeezed(group, *members)
    victim = kernel_victim(seen.states, LIMIT_MIB)
    assert victim is not None
    assert seen.killed == int(victim.name), seen


@pytest.mark.parametrize("adj", [0, 3, 474, 869, 999, 1000])
def test_the_kernels_own_score_is_the_models(group: Path, adj: int) -> None:
    for found in run(group, Member(adj, 8), Member(adj, 100))["states"]:
        assert abs(found["oom_score"] - shown(found["kib"], adj)) <= 1


HOLD = """
import sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text("0")
held = b"." * (int(sys.argv[2]) << 20)
print(flush=True)
sys.stdin.read()
"""


def test_what_is_swapped_out_counts_as_held(group: Path) -> None:
    if not dict(memory_kib())["SwapTotal"]:
        pytest.skip("this machine has no swap: that what is swapped out counts is NOT tested")
    unified = (group / "memory.max").exists()
    (group / ("memory.max" if unified else "memory.limit_in_bytes")).write_text(str(SWAPPING_MIB // 2 * 2**20))
    (group / ("memory.swap.max" if unified else "memory.swappiness")).write_text("max" if unified else "60")
    program = (sys.executable, "-I", "-S", "-c", HOLD, str(group), str(SWAPPING_MIB))
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = squeeze.state(process.pid)
        process.communicate()
    resident = found["kib"] - found["swapped_kib"]
    assert found["swapped_kib"] >= SWAPPING_MIB * KIB_PER_MIB // 3
    assert abs(found["oom_score"] - shown(found["kib"], found["adj"])) <= 1
    assert abs(found["oom_score"] - shown(resident, found["adj"])) > 1


def shown(kib: int, adj: int) -> int:
    """The score in /proc is (1000 + 1000 x badness / memory of the machine) x 2/3."""
    total_mib = sum(kib for name, kib in memory_kib() if name in ("MemTotal", "SwapTotal")) // KIB_PER_MIB
    badness = badness_pages(Fraction(kib, KIB_PER_MIB), adj, total_mib)
    return (1000 + badness * 1000 // (total_mib * PAGES_PER_MIB)) * 2 // 3


def memory_kib() -> Iterator[tuple[str, int]]:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        yield name, int(value.split()[0])
