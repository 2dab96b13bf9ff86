"""Configures NVIDIA's container runtime on the real node. A fake library replaces the driver's library.

The runtime and its hook need cgroup v2. On a machine with cgroup v1, the node mounts the v2 hierarchy at
/sys/fs/cgroup. On a machine with cgroup v1, the v2 hierarchy has no controllers. Therefore NVIDIA's runtime calls the
program `_NO_CONTROLLERS` in place of runc. `_NO_CONTROLLERS` removes the limits of host memory and CPU from each
container, and moves the container into its pod's control group. Then `_NO_CONTROLLERS` calls runc.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolchain.cluster.paths import Folder, found, missing, program

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
    """Returns the reason why NVIDIA's runtime cannot run on this machine, or None if the runtime can."""
    if lacking := missing(PROGRAMS):
        return f"{', '.join(lacking)}: python3 toolchain/install.py compiler oracle"
    return None


def has_only_cgroup_v2() -> bool:
    """Returns True if the machine uses only cgroup v2."""
    return (_CGROUPS / "cgroup.controllers").exists()


def mount_cgroups() -> None:
    """Mounts the v2 hierarchy in the node's mount namespace, in place of all v1 hierarchies."""
    if not has_only_cgroup_v2():
        for command in (("umount", "-R"), ("mount", "-t", "cgroup2", "cgroup2")):
            subprocess.run([*command, str(_CGROUPS)], check=True)


def driver_root(folder: Folder) -> Path:
    return folder.path / "driver"


def libraries(folder: Folder) -> Path:
    """Returns the folder in which NVIDIA's hook searches for the driver's libraries."""
    return driver_root(folder) / "usr" / "lib64"


def runc(folder: Folder) -> str:
    """Returns the path of the program that NVIDIA's runtime calls to start a container: runc, or `_NO_CONTROLLERS`."""
    return str(_home(folder) / "runc")


def environment(folder: Folder) -> dict[str, str]:
    """Returns the environment variables for containerd. NVIDIA's runtime inherits the path of its configuration from
    containerd."""
    return {"NVIDIA_CTK_CONFIG_FILE_PATH": str(_home(folder) / "config.toml")}


def write(folder: Folder, top: str) -> None:
    """Writes the configuration of NVIDIA's runtime, and the program that `runc` names.

    `top` is the node's control group. Call this function before `mount_cgroups`.
    """
    home = _home(folder)
    (home / "cdi").mkdir(parents=True)
    real = found("runc")
    if real is None:
        raise FileNotFoundError("runc is not installed")
    below = Path(runc(folder))
    if has_only_cgroup_v2():
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
    """Writes a CDI specification with an entry for each device, named by its UUID, and an entry `all` for all devices.

    Each device has the hook that sets memory limits, in the form that toolkit 1.20.1 writes
    (pkg/nvcdi/full-gpu-nvml.go, internal/discover/hooks.go). Without `hook`, the specification is like the
    specification of an older toolkit.
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
