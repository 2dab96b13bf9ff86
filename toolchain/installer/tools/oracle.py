"""Kubernetes' own code, for the tests that compare ours with it. Built only where there is Go: nobody releases it."""

from toolchain.installer.tool import GoBuild, Tool
from toolchain.installer.tools.cluster import KUBERNETES
from toolchain.installer.tools.site import Site, bare


def oracle(site: Site) -> tuple[Tool, ...]:
    module = site.module("kube")
    return (
        Tool(
            name="kube-oracle",
            version=bare(module.version(KUBERNETES)),
            platform=site.platform,
            links={"bin/kube-oracle": "kube-oracle"},
            recipes=(GoBuild(module=module, package="./oracle", output="kube-oracle"),),
        ),
    )
