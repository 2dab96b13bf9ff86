"""Simulates a Tesla T4 on the real node.

The pods' processes allocate no real GPU memory. `Card.turn` finds each process by its command line, and counts the
memory that the process's app uses in the simulation. Then `Card.turn` writes the figures that the fake NVML returns.
`Card.turn` kills a process that would use more memory than is free, because most CUDA programs end when an allocation
fails. All figures are whole MiB of GPU memory.
"""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolchain.cluster import fake_nvml
from toolchain.cluster.control_plane import NODE
from toolchain.cluster.image import agent_image

UUID = "GPU-real"
TOTAL_MIB = 15360
MIB = 2**20
# The memory of the driver, plus the memory of android-emulator. In the local cluster, android-emulator does not run as
# a pod.
REST_MIB = 450 + 154
LEFT_MIB = 700  # A leaking process stops growing when only LEFT_MIB are free.
TURN_SECONDS = 0.5
# The node's labels as NVIDIA's feature discovery would set them.
LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
    "nvidia.com/gpu.memory": str(TOTAL_MIB),
    "nvidia.com/gpu.count": "1",
}
# Another cluster can run on the same machine. Each cluster has its own mark on its processes.
MARK = f"day-{os.getpid()}:"
UNLOAD_SECONDS = 3  # the time from SIGTERM to the end of a process, because a model needs time to unload
_MODEL = (
    "import signal, sys, time\n"
    f"signal.signal(signal.SIGTERM, lambda *_: (time.sleep({UNLOAD_SECONDS}), sys.exit()))\n"
    "while True: signal.pause()"
)


def nvml_figures(free_mib: int) -> str:
    """Returns the input file of the fake NVML for a device.

    The device has `free_mib` MiB of free memory and no processes.
    """
    return f"0\ndevice {UUID} {TOTAL_MIB * MIB} {free_mib * MIB} {(TOTAL_MIB - free_mib) * MIB}\n"


def free_mib(held: Mapping[int, int]) -> int:
    return TOTAL_MIB - REST_MIB - sum(held.values())


def deployment(app: str, gpumem: Mapping[str, str], replicas: int) -> dict[str, Any]:
    """Returns a Deployment with pods on the real node. Each pod runs one process that uses the simulated device.

    `gpumem` has the container's limits, or is empty for a container without a budget.
    """
    container = {
        "name": "model",
        "image": agent_image(),
        "command": ["python", "-IS", "-c", _MODEL, f"{MARK}{app}"],
        **({"resources": {"limits": dict(gpumem)}} if gpumem else {}),
    }
    labels = {"app": app}
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "containers": [container],
        "automountServiceAccountToken": False,
    }
    return {
        "metadata": {"name": app},
        "spec": {
            "replicas": replicas,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def processes() -> Iterator[tuple[int, tuple[str, int]]]:
    """Yields each process as its PID on the node, its app and its PID on this machine.

    NVML reports the PID on the node.
    """
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            *_, last = (folder / "cmdline").read_text().rstrip("\0").split("\0")
            if last.startswith(MARK):
                (line,) = (x for x in (folder / "status").read_text().splitlines() if x.startswith("NSpid:"))
                if len(line.split()) < 4:  # The process belongs to runc and has not entered the container yet.
                    continue
                *_, on_the_node, _ = line.split()
                yield int(on_the_node), (last.removeprefix(MARK), int(folder.name))


@dataclass(kw_only=True)
class Card:
    """The simulated device and its processes.

    `script` is the input file of the fake NVML. `wants` maps each app to the MiB that the app's process should use.
    `leaks` maps a PID on the node to the MiB by which the process grows at each call of `turn`. `held` maps a PID on
    the node to the MiB that the process uses now. `died` lists the apps of killed processes.
    """

    script: Path
    wants: dict[str, int]
    leaks: dict[int, int] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)
    died: list[str] = field(default_factory=list)

    @property
    def free_mib(self) -> int:
        return free_mib(self.held)

    def turn(self) -> None:
        """Updates the memory of all processes and the input file of the fake NVML.

        During the update, other threads can read `held`.
        """
        found = dict(processes())
        held = {pid: mib for pid, mib in self.held.items() if pid in found}
        for pid, (app, on_host) in found.items():
            mib, free = held.pop(pid, 0), max(free_mib(held), 0)
            leaked_mib = min(mib + self.leaks.get(pid, 0), max(free - LEFT_MIB, mib))
            wanted_mib = leaked_mib if pid in self.leaks else self.wants[app]
            if wanted_mib <= free:
                held[pid] = wanted_mib
            else:
                self.died.append(app)
                with suppress(ProcessLookupError):
                    os.kill(on_host, signal.SIGKILL)
        self.held = held
        lines = [nvml_figures(self.free_mib), *(f"compute {pid} {mib * MIB}\n" for pid, mib in held.items())]
        fake_nvml.write(self.script, "".join(lines))

    def holds(self, app: str) -> int:
        return sum(self.held.get(pid, 0) for pid, (found, _) in processes() if found == app)

    def leak(self, app: str, mib: int) -> None:
        """Makes the app's current process grow by `mib` at each call of `turn`.

        The app's next process does not leak.
        """
        self.leaks |= {pid: mib for pid, (found, _) in processes() if found == app}
