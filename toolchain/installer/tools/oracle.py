"""Others' own code, for the tests that compare with it. Built only where there is Go: nobody releases it so."""

import shutil

from toolchain.installer.tool import GoBuild, Tool
from toolchain.installer.tools.cluster import KUBERNETES
from toolchain.installer.tools.site import Site, bare

TOOLKIT = "github.com/NVIDIA/nvidia-container-toolkit"
TOOLKIT_PROGRAMS = ("nvidia-cdi-hook", "nvidia-container-runtime")


def oracle(site: Site) -> tuple[Tool, ...]:
    """Kubernetes', and where there is a C compiler for it NVIDIA's runtime and the hook that sets a cap."""
    module = site.module("kube")
    kubernetes = Tool(
        name="kube-oracle",
        version=bare(module.version(KUBERNETES)),
        platform=site.platform,
        links={"bin/kube-oracle": "kube-oracle"},
        recipes=(GoBuild(module=module, package="./oracle", output="kube-oracle"),),
    )
    return (kubernetes, _toolkit(site)) if site.system == "linux" and shutil.which("gcc") else (kubernetes,)


def _toolkit(site: Site) -> Tool:
    module = site.module("nvidia-container-toolkit")
    return Tool(
        name="nvidia-container-toolkit",
        version=bare(module.version(TOOLKIT)),
        platform=site.platform,
        links={f"bin/{program}": program for program in TOOLKIT_PROGRAMS},
        recipes=tuple(
            GoBuild(module=module, package=f"{TOOLKIT}/cmd/{program}", output=program, cgo=True)
            for program in TOOLKIT_PROGRAMS
        ),
    )
