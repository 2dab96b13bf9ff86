"""Pulumi's hosts of other languages, for the tests that use our components from them."""

from toolchain.installer.store import PULUMI_HOME
from toolchain.installer.tool import GoBuild, Release, Tool
from toolchain.installer.tools.preview import PULUMI_CLI, PULUMI_SDK
from toolchain.installer.tools.site import GITHUB, Site, bare

HOSTS = {
    "nodejs": ("languages", "github.com/pulumi/pulumi/sdk/nodejs/cmd/pulumi-language-nodejs/v3"),
    "go": ("languages", "github.com/pulumi/pulumi/sdk/go/pulumi-language-go/v3"),
    "yaml": ("language-yaml", "github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml"),
}


def languages(site: Site) -> tuple[Tool, ...]:
    """Where the CLI's release can be had, its own. Else those that can be had as modules: of Node.js and Go an older
    one, as of Python, which writes SDKs and runs programs, but cannot link an SDK into a project for a newer CLI."""
    version = bare(site.module("pulumi").version(PULUMI_CLI))
    base = f"{GITHUB}/pulumi/pulumi/releases/download/v{version}"
    architecture = {"amd64": "x64"}.get(site.architecture, site.architecture)
    programs = [f"pulumi-language-{name}" for name in HOSTS]
    return (
        Tool(
            name="pulumi-languages",
            version=version,
            platform=site.platform,
            links={f"{PULUMI_HOME}/plugins/{program[7:]}-v{version}/{program}": program for program in programs},
            release=Release(
                url=f"{base}/pulumi-v{version}-{site.system}-{architecture}.tar.gz",
                checksums=f"{base}/pulumi-{version}-checksums.txt",
                members=tuple(f"pulumi/{program}" for program in programs),
            ),
            recipes=tuple(
                GoBuild(
                    module=(module := site.module(folder)),
                    package=package,
                    output=f"pulumi-language-{name}",
                    stamps={f"{PULUMI_SDK}/go/common/version.Version": bare(module.version(PULUMI_SDK))},
                )
                for name, (folder, package) in HOSTS.items()
            ),
        ),
    )
