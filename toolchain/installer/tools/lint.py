"""What checks the workflows."""

from toolchain.installer.tool import GoBuild, OnPath, Release, Tool
from toolchain.installer.tools.site import GITHUB, Site, bare, exactly

ACTIONLINT = "github.com/rhysd/actionlint"


def lint(site: Site) -> tuple[Tool, ...]:
    return (_actionlint(site),)


def _actionlint(site: Site) -> Tool:
    module = site.module("actionlint")
    version = bare(module.version(ACTIONLINT))
    base = f"{GITHUB}/rhysd/actionlint/releases/download/v{version}"
    return Tool(
        name="actionlint",
        version=version,
        platform=site.platform,
        links={"bin/actionlint": "actionlint"},
        on_path=OnPath(command=("actionlint", "-version"), accepts=exactly),
        release=Release(
            url=f"{base}/actionlint_{version}_{site.system}_{site.architecture}.tar.gz",
            checksums=f"{base}/actionlint_{version}_checksums.txt",
            members=("actionlint",),
        ),
        recipes=(
            GoBuild(
                module=module,
                package=f"{ACTIONLINT}/cmd/actionlint",
                output="actionlint",
                stamps={f"{ACTIONLINT}.version": version},
            ),
        ),
    )
