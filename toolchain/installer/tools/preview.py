"""What `make preview` runs: Pulumi with its Python host, the Kubernetes provider, Kueue's chart, uv for .venv."""

from toolchain.installer.pins import python_pin, requirement_pin
from toolchain.installer.store import PULUMI_HOME
from toolchain.installer.tool import GoBuild, ModuleFiles, OnPath, PipInstall, Release, Tool
from toolchain.installer.tools.site import GITHUB, KUEUE, Site, bare, exactly

PULUMI_CLI = "github.com/pulumi/pulumi/pkg/v3"
PULUMI_SDK = "github.com/pulumi/pulumi/sdk/v3"
PULUMI_LANGUAGE_PYTHON = "github.com/pulumi/pulumi/sdk/python/cmd/pulumi-language-python/v3"
PULUMI_KUBERNETES = "github.com/pulumi/pulumi-kubernetes/provider/v4"


def python(site: Site) -> tuple[Tool, ...]:
    """What makes .venv, without Pulumi's programs."""
    return (_uv(site),)


def preview(site: Site) -> tuple[Tool, ...]:
    return (_uv(site), _pulumi(site), _pulumi_kubernetes(site), _kueue_chart(site))


def any_version(found: str, wanted: str) -> bool:
    return True


def _uv(site: Site) -> Tool:
    requirements = site.checkout / "toolchain" / "uv" / "requirements.txt"
    return Tool(
        name="uv",
        version=requirement_pin(requirements, "uv"),
        platform=site.platform,
        links={"bin/uv": "uv"},
        on_path=OnPath(command=("uv", "--version"), accepts=any_version),
        recipes=(PipInstall(requirements=requirements, program="uv"),),
    )


def _pulumi(site: Site) -> Tool:
    """The CLI with its Python language host, which it expects next to itself.

    The two are one release. As Go modules they are two, and the newest language host that can be had as a module is
    older; its shims come from its own SDK, so that host and shims match.
    """
    cli, host = site.module("pulumi"), site.module("language-python")
    version = bare(cli.version(PULUMI_CLI))
    base = f"{GITHUB}/pulumi/pulumi/releases/download/v{version}"
    architecture = {"amd64": "x64"}.get(site.architecture, site.architecture)
    stamp = f"{PULUMI_SDK}/go/common/version.Version"
    programs = ("pulumi", "pulumi-language-python", "pulumi-language-python-exec")
    return Tool(
        name="pulumi",
        version=version,
        platform=site.platform,
        links={f"bin/{program}": program for program in programs},
        on_path=OnPath(command=("pulumi", "version"), accepts=exactly),
        release=Release(
            url=f"{base}/pulumi-v{version}-{site.system}-{architecture}.tar.gz",
            checksums=f"{base}/pulumi-{version}-checksums.txt",
            members=("pulumi/pulumi", "pulumi/pulumi-language-python*", "pulumi/pulumi-resource-pulumi-python"),
        ),
        recipes=(
            ModuleFiles(
                module=host,
                path=PULUMI_SDK,
                files={
                    "python/cmd/pulumi-language-python-exec": "pulumi-language-python-exec",
                    "python/dist/pulumi-resource-pulumi-python": "pulumi-resource-pulumi-python",
                },
            ),
            GoBuild(
                module=host,
                package=PULUMI_LANGUAGE_PYTHON,
                output="pulumi-language-python",
                stamps={stamp: bare(host.version(PULUMI_SDK))},
            ),
            GoBuild(module=cli, package=f"{PULUMI_CLI}/cmd/pulumi", output="pulumi", stamps={stamp: f"v{version}"}),
        ),
    )


def _pulumi_kubernetes(site: Site) -> Tool:
    """The Kubernetes provider, in the place where the CLI looks for plugins.

    Its release number is the Python package's, since the engine asks for the plugin of that version; its Go module
    carries no release tags, so there a commit is pinned whose code is that release's.
    """
    version = python_pin(site.checkout / "pyproject.toml", "pulumi-kubernetes")
    module = site.module("provider-kubernetes")
    base = f"{GITHUB}/pulumi/pulumi-kubernetes/releases/download/v{version}"
    program = "pulumi-resource-kubernetes"
    source = "cmd/pulumi-resource-kubernetes"
    embedded = ("schema.json", "terraform-mapping.json")
    return Tool(
        name=program,
        version=version,
        platform=site.platform,
        links={f"{PULUMI_HOME}/plugins/resource-kubernetes-v{version}/{program}": program},
        release=Release(
            url=f"{base}/{program}-v{version}-{site.platform}.tar.gz",
            checksums=f"{base}/pulumi-kubernetes_{version}_checksums.txt",
            members=(program,),
        ),
        recipes=(
            GoBuild(
                module=module,
                package=".",
                output=program,
                stamps={f"{PULUMI_KUBERNETES}/pkg/version.Version": version},
                embeds=ModuleFiles(
                    module=module, path=PULUMI_KUBERNETES, files={f"{source}/{name}": name for name in embedded}
                ),
            ),
        ),
    )


def _kueue_chart(site: Site) -> Tool:
    """The Helm chart, as the Go module holds it: go.sum proves it for everybody, with or without Go."""
    module = site.module("kube")
    return Tool(
        name="kueue-chart",
        version=bare(module.version(KUEUE)),
        platform="any",
        links={"charts/kueue": ""},
        recipes=(ModuleFiles(module=module, path=KUEUE, files={"charts/kueue/": ""}),),
    )
