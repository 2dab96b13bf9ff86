"""NVIDIA's own hook before the exporter's reader: what it sets for a control group is what is read back.

nvidia-cdi-hook 1.20.1, where it is on PATH (`go build github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook`),
in a mount namespace whose /sys/fs/cgroup is cgroup v2, before the library of fake_nvml.c.
"""

import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from toolchain.cluster import fake_nvml

LIMIT_MIB = 3000
_INSIDE = """
set -e
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
pod=/sys/fs/cgroup/kubepods-pod$POD.slice
trap 'kill $(jobs -p); wait; rmdir $pod/*.scope $pod' EXIT
for id in $HELD $BARE; do
    mkdir -p $pod/cri-containerd-$id.scope
    sleep 60 & echo $! > $pod/cri-containerd-$id.scope/cgroup.procs
    [ $id = $BARE ] || printf '{"ociVersion":"1.0.2","id":"c","status":"created","pid":%s,"bundle":"%s"}' $! $BUNDLE |
        nvidia-cdi-hook apply-cuda-memory-limits --driver-root $DRIVER --gpu-id GPU-0 >&2
done
LD_LIBRARY_PATH=$DRIVER/usr/lib64 "$PYTHON" -c "$READ" $HELD $BARE
"""
_READ = """
import os, sys
from pathlib import Path
from agents.exporter.nvml import Nvml
from agents.node.cgroup import Container, Groups
nvml, groups, pod = Nvml(), Groups(Path("/sys/fs/cgroup")), os.environ["POD"].replace("_", "-")
nvml.read()
assert groups.unified
wanted = [Container(pod, each) for each in sys.argv[1:]]
found = groups.find(set(wanted))
print(*(nvml.limit("GPU-0", found[each]) for each in wanted))
"""


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """The root of a driver whose library is the fake, with a device on its own accounting."""
    if os.geteuid() != 0 or shutil.which("nvidia-cdi-hook") is None:
        pytest.skip("NVIDIA'S HOOK IS NOT RUN: it needs root, and nvidia-cdi-hook 1.20.1 on PATH")
    folder = tmp_path / "driver" / "usr" / "lib64"
    folder.mkdir(parents=True)
    if not fake_nvml.build(folder):
        pytest.skip("NO C COMPILER: NVIDIA's hook is not run")
    (folder / "card").write_text(f"0\ndevice GPU-0 {2**34} {2**34} 0\naccounting misc\n")
    return tmp_path / "driver"


def test_what_nvidias_hook_sets_is_read_back_and_a_container_without_the_hook_has_no_limit(
    driver: Path, tmp_path: Path
) -> None:
    variables = [f"NVIDIA_GPU_MEMORY_{kind}={LIMIT_MIB}" for kind in ("LIMIT", "REQUEST")]
    config = {"ociVersion": "1.0.2", "process": {"cwd": "/", "args": ["x"], "env": variables}, "root": {"path": "x"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    environ = {
        **os.environ,
        "POD": str(uuid.uuid4()).replace("-", "_"),
        "HELD": "a" * 64,
        "BARE": "b" * 64,
        "BUNDLE": str(tmp_path),
        "DRIVER": str(driver),
        "PYTHON": sys.executable,
        "READ": _READ,
    }
    command = ["unshare", "--mount", "--propagation", "private", "bash", "-c", _INSIDE]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(LIMIT_MIB * 2**20), "no-limit"], done.stderr
    (line,) = (driver / "usr" / "lib64" / "limits").read_text().splitlines()
    assert line.endswith(f"cri-containerd-{'a' * 64}.scope {LIMIT_MIB * 2**20} {LIMIT_MIB * 2**20}")
