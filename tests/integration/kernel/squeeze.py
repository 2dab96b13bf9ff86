"""Exhausts the memory of a cgroup, and prints which processes the kernel kills.

Usage: `python -I -S squeeze.py <cgroup> <limit in MiB> <[[oom_score_adj, MiB], ...]>`.
"""

import json
import mmap
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

MIB = 2**20
# OVER_MIB is how far the last allocation exceeds the cgroup's limit.
OVER_MIB = 2


def main(group: Path, limit_mib: int, sizes: list[tuple[int, int]]) -> None:
    _limit(group, limit_mib * MIB)
    alive, held = os.pipe()
    members = [_member(group, alive, held, adj, mib) for adj, mib in sizes]
    states = [state(pid) for pid in members]
    left_kib = limit_mib * 1024 - _usage(group) // 1024
    members.append(_member(group, alive, held, 0, left_kib // 1024 + OVER_MIB))
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    for pid in members:
        os.kill(pid, signal.SIGTERM)
    killed = [position for position, pid in enumerate(members) if _was_killed(pid)]
    print(json.dumps({"states": states, "left_kib": left_kib, "killed": killed}))


def _limit(group: Path, size: int) -> None:
    if (group / "memory.max").exists():  # cgroup v2
        (group / "memory.max").write_text(str(size))
        (group / "memory.swap.max").write_text("0")
    else:
        (group / "memory.limit_in_bytes").write_text(str(size))
        (group / "memory.swappiness").write_text("0")


def _usage(group: Path) -> int:
    current = group / "memory.current"
    return int((current if current.exists() else group / "memory.usage_in_bytes").read_text())


def _member(group: Path, alive: int, held: int, adj: int, mib: int) -> int:
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(held)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        Path("/proc/self/oom_score_adj").write_text(str(adj))
        area = mmap.mmap(-1, mib * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for page in range(0, mib * MIB, mmap.PAGESIZE):
            area[page] = 1
        os.write(tell, b".")
        os.read(alive, 1)
        os._exit(0)
    os.close(tell)
    os.read(ready, 1)
    os.close(ready)
    return pid


def state(pid: int) -> dict[str, int]:
    told = dict(_pairs(Path(f"/proc/{pid}/status").read_text()))
    counted = {name: int(told.get(name, "0 kB").split()[0]) for name in ("VmRSS", "VmSwap", "VmPTE")}
    return {
        "kib": sum(counted.values()),
        "swapped_kib": counted["VmSwap"],
        "adj": int(Path(f"/proc/{pid}/oom_score_adj").read_text()),
        "oom_score": int(Path(f"/proc/{pid}/oom_score").read_text()),
    }


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        yield name, value


def _was_killed(pid: int) -> bool:
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
