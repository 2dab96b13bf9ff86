"""A real node next to the simulated ones: a kubelet, containerd, network plugins. runc comes from the system."""

from toolchain.installer.errors import ToolchainError
from toolchain.installer.tool import GoBuild, OnPath, Release, Tool
from toolchain.installer.tools.cluster import kubernetes
from toolchain.installer.tools.site import GITHUB, Site, bare, exactly

CONTAINERD = "github.com/containerd/containerd/v2"
CNI_PLUGINS = "github.com/containernetworking/plugins"


def node(site: Site) -> tuple[Tool, ...]:
    if site.system != "linux":
        raise ToolchainError("the node group, a kubelet with containerd, exists on Linux only")
    return (kubernetes(site, "kubelet", ("--version",), exactly), _containerd(site), _cni_plugins(site))


def _containerd(site: Site) -> Tool:
    module = site.module("node")
    version = bare(module.version(CONTAINERD))
    base = f"{GITHUB}/containerd/containerd/releases/download/v{version}"
    url = f"{base}/containerd-{version}-{site.platform}.tar.gz"
    programs = ("containerd", "containerd-shim-runc-v2", "ctr")
    return Tool(
        name="containerd",
        version=version,
        platform=site.platform,
        links={f"bin/{program}": program for program in programs},
        on_path=OnPath(command=("containerd", "--version"), accepts=exactly),
        release=Release(url=url, checksums=f"{url}.sha256sum", members=tuple(f"bin/{program}" for program in programs)),
        recipes=tuple(
            GoBuild(
                module=module,
                package=f"{CONTAINERD}/cmd/{program}",
                output=program,
                stamps={f"{CONTAINERD}/version.Version": f"v{version}"},
                tags="no_btrfs,no_zfs,no_devmapper",  # snapshotters that need C libraries
            )
            for program in programs
        ),
    )


def _cni_plugins(site: Site) -> Tool:
    """In a folder of their own, as containerd wants them; `bridge` and `loopback` are no names for a PATH."""
    module = site.module("node")
    version = bare(module.version(CNI_PLUGINS))
    base = f"{GITHUB}/containernetworking/plugins/releases/download/v{version}"
    url = f"{base}/cni-plugins-{site.platform}-v{version}.tgz"
    packages = {"bridge": "main/bridge", "loopback": "main/loopback", "host-local": "ipam/host-local"}
    return Tool(
        name="cni-plugins",
        version=version,
        platform=site.platform,
        links={"cni": ""},
        release=Release(url=url, checksums=f"{url}.sha256", members=tuple(packages)),
        recipes=tuple(
            GoBuild(module=module, package=f"{CNI_PLUGINS}/plugins/{package}", output=program)
            for program, package in packages.items()
        ),
    )
