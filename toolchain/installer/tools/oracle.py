"""Others' own code, for the tests that compare with it. Built only where there is Go: nobody releases it so."""

import shutil

from toolchain.installer.tool import GoBuild, Tool
from toolchain.installer.tools.cluster import KUBERNETES
from toolchain.installer.tools.site import Site, bare

TOOLKIT = "github.com/NVIDIA/nvidia-container-toolkit"


def oracle(site: Site) -> tuple[Tool, ...]:
    """Kubernetes', and where there is a C compiler for it NVIDIA's hook that sets a container's cap."""
    module = site.module("kube")
    kubernetes = Tool(
        name="kube-oracle",
        version=bare(module.version(KUBERNETES)),
        platform=site.platform,
        links={"bin/kube-oracle": "kube-oracle"},
        recipes=(GoBuild(module=module, package="./oracle", output="kube-oracle"),),
    )
    return (kubernetes, _cdi_hook(site)) if site.system == "linux" and shutil.which("gcc") else (kubernetes,)


def _cdi_hook(site: Site) -> Tool:
    module = site.module("nvidia-container-toolkit")
    return Tool(
        name="nvidia-cdi-hook",
        version=bare(module.version(TOOLKIT)),
        platform=site.platform,
        links={"bin/nvidia-cdi-hook": "nvidia-cdi-hook"},
        recipes=(GoBuild(module=module, package=f"{TOOLKIT}/cmd/nvidia-cdi-hook", output="nvidia-cdi-hook", cgo=True),),
    )
