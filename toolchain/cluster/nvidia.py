"""NVIDIA's own container runtime on the real node, with a fake library in place of the driver's.

The runtime and its hook need cgroup v2. On a machine with v1, the node mounts the hierarchy of v2 as /sys/fs/cgroup,
which then has no controllers. A program between NVIDIA's runtime and runc (`_NO_CONTROLLERS`) therefore removes the
limits of host memory and CPU from each container. It also creates the pod's control group, as a kubelet would.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolchain.cluster.paths import Folder, missing, program

PROGRAMS = ("nvidia-container-runtime", "nvidia-cdi-hook")
KIND = "nvidia.com/gpu"
_CGROUPS = Path("/sys/fs/cgroup")
_NO_CONTROLLERS = """#!{python} -IS
import json, os, sys
given = sys.argv[1:]
if "create" in given:
    path = os.path.join(given[given.index("--bundle") + 1], "config.json")
    with open(path) as file:
        spec = json.load(file)
    linux = spec["linux"]
    linux["resources"] = {{"devices": linux.get("resources", {{}}).get("devices", [])}}
    pod, identity = spec["annotations"]["io.kubernetes.cri.sandbox-uid"], os.path.basename(linux["cgroupsPath"])
    linux["cgroupsPath"] = f"{top}/kubepods/pod{{pod}}/{{identity}}"
    with open(path, "w") as file:
        json.dump(spec, file)
os.execv({runc!r}, [{runc!r}, *given])
"""


def why_not() -> str | None:
    """Returns the reason why NVIDIA's runtime cannot run here; None if it can."""
    if lacking := missing(PROGRAMS):
        return f"{', '.join(lacking)}: run make oracle-toolchain, which needs Go and a C compiler"
    return None


def unified() -> bool:
    """Returns True if the machine has cgroup v2 alone."""
    return (_CGROUPS / "cgroup.controllers").exists()


def mount_cgroups() -> None:
    """Mounts the hierarchy of cgroup v2 in the node's mount namespace, as the only one."""
    if not unified():
        for command in (("umount", "-R"), ("mount", "-t", "cgroup2", "cgroup2")):
            subprocess.run([*command, str(_CGROUPS)], check=True)


def driver_root(folder: Folder) -> Path:
    return folder.path / "driver"


def libraries(folder: Folder) -> Path:
    """The folder of the driver's libraries, in which NVIDIA's hook searches."""
    return driver_root(folder) / "usr" / "lib64"


def runc(folder: Folder) -> str:
    """The program that starts containers, written before the node mounts its control groups."""
    return str(_home(folder) / "runc")


def environment(folder: Folder) -> dict[str, str]:
    """containerd's environment, for the shims that run NVIDIA's runtime."""
    return {"NVIDIA_CTK_CONFIG_FILE_PATH": str(_home(folder) / "config.toml")}


def write(folder: Folder, top: str) -> None:
    """Writes the runtime's configuration and its runc. `top` is the node's own control group."""
    home = _home(folder)
    (home / "cdi").mkdir(parents=True)
    real = shutil.which("runc")
    if real is None:
        raise FileNotFoundError("runc is not installed")
    below = Path(runc(folder))
    if unified():
        below.symlink_to(real)
    else:
        below.write_text(_NO_CONTROLLERS.format(python=sys.executable, runc=real, top=top))
        below.chmod(0o755)
    (home / "config.toml").write_text(f"""[nvidia-container-runtime]
debug = "{folder.log("nvidia-container-runtime")}"
mode = "cdi"
runtimes = ["{below}"]
[nvidia-container-runtime.modes.cdi]
default-kind = "{KIND}"
spec-dirs = ["{home / "cdi"}"]
""")


def write_cdi(folder: Folder, uuids: Sequence[str], *, hook: bool = True) -> None:
    """Writes a CDI specification of these devices, each under its UUID and all together under `all`.

    It has the memory limits of toolkit 1.20.1 (pkg/nvcdi/full-gpu-nvml.go, internal/discover/hooks.go). An older
    toolkit lacks the hook.
    """
    root, lib = driver_root(folder), libraries(folder)
    common: dict[str, Any] = {
        "env": ["LD_LIBRARY_PATH=/opt/nvidia"],
        "mounts": [{"hostPath": str(lib), "containerPath": "/opt/nvidia", "options": ["rbind", "ro"]}],
    }
    hooks = {uuid: [_limits(root, uuid)] if hook else [] for uuid in uuids}
    hooks["all"] = [one for own in hooks.values() for one in own]
    devices = [
        {"name": name, "containerEdits": {"env": [f"CDI_DEVICE={name}"], "hooks": own}} for name, own in hooks.items()
    ]
    spec = {"cdiVersion": "0.5.0", "kind": KIND, "containerEdits": common, "devices": devices}
    path = _home(folder) / "cdi" / "nvidia.json"
    whole = path.with_suffix(".new")
    whole.write_text(json.dumps(spec))
    whole.replace(path)


def _limits(root: Path, uuid: str) -> dict[str, Any]:
    arguments = ["nvidia-cdi-hook", "apply-cuda-memory-limits", "--driver-root", str(root), "--gpu-id", uuid]
    return {"hookName": "createRuntime", "path": program("nvidia-cdi-hook"), "args": arguments}


def _home(folder: Folder) -> Path:
    return folder.path / "nvidia-runtime"
