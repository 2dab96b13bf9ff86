"""Runs a real node: containerd and a kubelet in new PID, mount and network namespaces.

The first process of the new namespaces executes the function `run` of this module. When this first process ends, the
kernel ends every container, and removes every mount, bridge and address of the node. The pods can connect only to the
API server, at the address of the Service `kubernetes`. The real node has no kube-proxy.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolchain.cluster import image, nvidia
from toolchain.cluster.api import wait_until
from toolchain.cluster.control_plane import NODE, SERVICE_IP, Ports
from toolchain.cluster.paths import CHECKOUT, TOOLCHAIN, Folder, found, missing, program
from toolchain.cluster.paths import NODE as PROGRAMS
from toolchain.cluster.process import ChildProcess, Command
from toolchain.cluster.relay import End, Tcp, Unix, serve

TAINT = "gpu-tenancy/real-node"
_SYSTEM_PROGRAMS = ("runc", "unshare", "mount", "ip")
_NAMESPACES = ("--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc")
_RESTART_SECONDS = 0.5
_RUNTIME_SECONDS = 120
_SOCKET = "/run/containerd.sock"
_CGROUPS = Path("/sys/fs/cgroup")
_ADDRESS = "10.3.0.1"
_POD_RANGE = "10.2.0.0/24"


def why_not() -> str | None:
    """Returns the reason why this machine cannot run a real node, or None if the machine can."""
    if sys.platform != "linux":
        return "a real node needs Linux"
    if os.geteuid() != 0:
        return "a real node needs root"
    if lacking := [*missing(PROGRAMS), *(name for name in _SYSTEM_PROGRAMS if found(name) is None)]:
        return f"a real node needs {', '.join(lacking)}: run make cluster-toolchain, which says what it cannot install"
    probe = (str(found("unshare")), *_NAMESPACES, "true")
    tried = subprocess.run(probe, capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"a real node needs namespaces, which this container or machine refuses ({tried.stderr.strip()})"
    return None


def command(folder: Folder, ports: Ports, *, toolkit: bool = False) -> Command:
    """Returns the command that runs the node, with NVIDIA's container runtime if `toolkit` is set.

    The caller ends the node's command with SIGKILL. After SIGKILL, the kernel removes the node's namespaces.
    """
    given = (str(folder.path), json.dumps(asdict(ports)), *(["toolkit"] if toolkit else []))
    module = (sys.executable, "-m", "toolchain.cluster.node", *given)
    return Command(
        name="node",
        arguments=("unshare", *_NAMESPACES, *module),
        environment={"PYTHONPATH": str(CHECKOUT)},
        stop_signal=signal.SIGKILL,
    )


def forwarded_connections(folder: Folder, ports: Ports) -> list[tuple[End, End]]:
    """Returns the connections that this machine forwards: from the node to the API server, and from the API server to
    the kubelet."""
    kubelet = Tcp("127.0.0.1", ports.kubelet)
    return [(_api_socket(folder), Tcp("127.0.0.1", ports.api_server)), (kubelet, _kubelet_socket(folder))]


def gpu_libraries(folder: Folder) -> Path:
    """Returns the folder with the fake driver's libraries for containers of RuntimeClass nvidia. Tests fill it."""
    return folder.path / "nvidia"


def find_process(holder: int, words: Sequence[str]) -> int:
    """Returns the PID, on this machine, of the node's process with these words in its command line.

    `holder` is the PID of the node's command. Raises ProcessLookupError if the process does not exist yet.
    """
    below = [holder]
    for pid in below:
        with suppress(FileNotFoundError, ProcessLookupError):  # the process has ended since its PID was read
            if set(words) <= set(Path(f"/proc/{pid}/cmdline").read_text().split("\0")):
                return pid
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                below.extend(map(int, children.read_text().split()))
    raise ProcessLookupError(f"no process of the node has {' '.join(words)} in its command line")


def remove_cgroups(folder: Folder) -> None:
    """Removes the control groups of a node that has ended."""
    for top in _cgroup_tops(folder):
        for path, _, _ in os.walk(top, topdown=False):
            with suppress(OSError):  # a process of the group has not ended completely
                Path(path).rmdir()


def run(folder: Folder, ports: Ports, *, toolkit: bool) -> None:
    """Runs the node as the first process of its namespaces. Never returns."""
    _mount(folder)
    if toolkit:
        nvidia.write(folder, f"/{_cgroup(folder)}")
        nvidia.mount_cgroups()
    _run("ip", "link", "set", "lo", "up")
    for address in (_ADDRESS, SERVICE_IP):
        _run("ip", "address", "add", f"{address}/32", "dev", "lo")
    for top in _cgroup_tops(folder):
        top.mkdir(exist_ok=True)
    containerd = ChildProcess.start(_containerd(folder, toolkit=toolkit), folder)
    archive = folder.path / "image.tar"
    image.write(archive)
    wait_until(Path(_SOCKET).exists, _RUNTIME_SECONDS, "containerd listens")
    _load(archive)
    archive.unlink()
    kubelet = ChildProcess.start(_kubelet(folder, ports), folder)
    asyncio.run(_hold(folder, ports, [containerd, kubelet]))


async def _hold(folder: Folder, ports: Ports, parts: list[ChildProcess]) -> None:
    """Restarts containerd and the kubelet if they end. Also reaps orphans, as the init process of a node must."""
    api, kubelet = _api_socket(folder), _kubelet_socket(folder)
    ways: list[tuple[End, End]] = [(Tcp(SERVICE_IP, 443), api), (Tcp("127.0.0.1", ports.api_server), api)]
    ways.append((kubelet, Tcp("127.0.0.1", ports.kubelet)))
    serving = asyncio.create_task(serve(ways))
    while not serving.done():
        await asyncio.sleep(_RESTART_SECONDS)
        parts = [part if part.running else ChildProcess.start(part.command, folder) for part in parts]
        _reap({part.pid for part in parts})
    serving.result()


def _reap(own: set[int]) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in own:
            os.waitpid(ended.si_pid, 0)


def _mount(folder: Folder) -> None:
    """containerd and the kubelet write into fixed folders.

    Mounts folders of the cluster over the fixed folders of containerd and the kubelet.
    """
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for place in ("/var/log", "/var/lib/kubelet"):
        own = folder.path / "node" / Path(place).name
        own.mkdir(parents=True)
        Path(place).mkdir(exist_ok=True)
        _run("mount", "--bind", str(own), place)


def _containerd(folder: Folder, *, toolkit: bool) -> Command:
    """Returns containerd's command, and writes its configuration.

    The pods are connected to a bridge in the node's network namespace.
    """
    home = folder.path / "containerd"
    network = home / "net.d"
    network.mkdir(parents=True)
    ipam = {
        "type": "host-local",
        "dataDir": "/run/cni",
        "ranges": [[{"subnet": _POD_RANGE}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "ipam": ipam}
    (network / "pods.conflist").write_text(json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}))
    config = home / "config.toml"
    config.write_text(f"""version = 3
root = "{home}/root"
state = "/run/containerd"
[grpc]
address = "{_SOCKET}"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{image.PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true  # a sandbox asks for -998, which takes CAP_SYS_RESOURCE
{_gpu_runtime(folder, toolkit=toolkit)}
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{TOOLCHAIN / "cni"}"]
conf_dir = "{network}"
""")
    path = f"{TOOLCHAIN / 'bin'}:{os.environ['PATH']}"  # of containerd-shim-runc-v2
    arguments = (program("containerd"), f"--config={config}")
    environment = {"PATH": path} | (nvidia.environment(folder) if toolkit else {})
    return Command(name="containerd", arguments=arguments, environment=environment)


def _gpu_runtime(folder: Folder, *, toolkit: bool) -> str:
    runtimes = '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes'
    if not toolkit:
        return f"""{runtimes}.nvidia]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "{_gpu_spec(folder)}"
"""
    programs = {"runc": nvidia.runc(folder), "nvidia": program("nvidia-container-runtime")}
    return "".join(
        f"""{runtimes}.{name}]
runtime_type = "io.containerd.runc.v2"
{runtimes}.{name}.options]
BinaryName = "{path}"
"""
        for name, path in programs.items()
    )


def _gpu_spec(folder: Folder) -> Path:
    """Writes the base OCI spec for containers of RuntimeClass nvidia, and returns its path.

    The spec mounts the folder `gpu_libraries` at a path that the dynamic loader searches. NVIDIA's runtime mounts the
    driver's libraries in the same way.
    """
    libraries = gpu_libraries(folder)
    libraries.mkdir(mode=0o755)
    said = subprocess.run([program("ctr"), "oci", "spec"], capture_output=True, check=True).stdout
    spec = json.loads(said)
    spec["mounts"].append(
        {"destination": "/opt/nvidia", "source": str(libraries), "type": "bind", "options": ["rbind", "ro"]}
    )
    spec["process"]["env"] = ["LD_LIBRARY_PATH=/opt/nvidia"]
    path = folder.path / "containerd" / "nvidia.json"
    path.write_text(json.dumps(spec))
    return path


def _load(archive: Path) -> None:
    ctr = [program("ctr"), f"--address={_SOCKET}", "--connect-timeout=30s", "--namespace=k8s.io"]
    subprocess.run([*ctr, "image", "import", "--local", str(archive)], check=True)


def _kubelet(folder: Folder, ports: Ports) -> Command:
    config = folder.path / "kubelet.json"
    config.write_text(json.dumps(_kubelet_configuration(folder, ports)))
    return Command(
        name="kubelet",
        arguments=(
            program("kubelet"),
            f"--config={config}",
            f"--kubeconfig={folder.kubeconfig_of('kubelet')}",
            f"--hostname-override={NODE}",
            f"--node-ip={_ADDRESS}",
        ),
    )


def _kubelet_configuration(folder: Folder, ports: Ports) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": ports.kubelet,
        "healthzPort": 0,
        "tlsCertFile": str(folder.pki / "kubelet-server.crt"),
        "tlsPrivateKeyFile": str(folder.pki / "kubelet-server.key"),
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(folder.ca)}},
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{_cgroup(folder)}",
        "failCgroupV1": False,
        "failSwapOn": False,
        **_pod_cgroups(),
        # With the kubelet's default settings, a nearly full disk would make the kubelet evict pods and delete images.
        # The images exist only on the node, so the kubelet could not pull deleted images.
        "evictionHard": {"memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "resolvConf": "",
        "registerWithTaints": [{"key": TAINT, "effect": "NoSchedule"}],
    }


def _pod_cgroups() -> dict[str, Any]:
    """Returns the kubelet's settings for the control groups of pods.

    Without a cgroup controller for memory, the kubelet must not create control groups for pods.
    """
    if nvidia.has_only_cgroup_v2() and "memory" not in (_CGROUPS / "cgroup.controllers").read_text().split():
        return {"cgroupsPerQOS": False, "enforceNodeAllocatable": []}
    return {"enforceNodeAllocatable": ["pods"]}


def _cgroup(folder: Folder) -> str:
    return f"gpu-tenancy-{folder.path.stat().st_ino}"


def _cgroup_tops(folder: Folder) -> Iterator[Path]:
    for hierarchy in [_CGROUPS] if nvidia.has_only_cgroup_v2() else sorted(_CGROUPS.iterdir()):
        yield hierarchy / _cgroup(folder)


def _api_socket(folder: Folder) -> Unix:
    return Unix(folder.path / "api.sock")


def _kubelet_socket(folder: Folder) -> Unix:
    return Unix(folder.path / "kubelet.sock")


def _run(*arguments: str) -> None:
    subprocess.run(arguments, check=True)


if __name__ == "__main__":
    run(Folder(Path(sys.argv[1])), Ports(**json.loads(sys.argv[2])), toolkit=sys.argv[3:] == ["toolkit"])
