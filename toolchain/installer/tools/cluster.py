"""What the cluster tests run: a control plane on loopback, kwok for its nodes, Kueue."""

from collections.abc import Callable

from toolchain.installer.tool import GoBuild, ModuleFiles, OnPath, Release, Tool
from toolchain.installer.tools.site import GITHUB, KUEUE, Site, bare, exactly

KUBERNETES = "k8s.io/kubernetes"
KWOK = "sigs.k8s.io/kwok"
ETCD = "go.etcd.io/etcd/server/v3"

# The Stage objects alone: the folders also hold kustomizations and test data, which kwok would choke on.
KWOK_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
    "pod/general/pod-create.yaml",
    "pod/general/pod-init-container-running.yaml",
    "pod/general/pod-init-container-completed.yaml",
    "pod/general/pod-ready.yaml",
    "pod/general/pod-complete.yaml",
    "pod/general/pod-delete.yaml",
)


def cluster(site: Site) -> tuple[Tool, ...]:
    servers = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    control_plane = [kubernetes(site, name, ("--version",), exactly) for name in servers]
    kubectl = kubernetes(site, "kubectl", ("version", "--client"), one_minor_apart)
    return (_etcd(site), *control_plane, kubectl, _kwok(site), _kwok_stages(site), _kueue(site))


def one_minor_apart(found: str, wanted: str) -> bool:
    """Kubernetes' promise for kubectl: it works with a server one minor version older or newer."""
    (major, minor), (wanted_major, wanted_minor) = (map(int, version.split(".")[:2]) for version in (found, wanted))
    return major == wanted_major and abs(minor - wanted_minor) <= 1


def _etcd(site: Site) -> Tool:
    module = site.module("kube")
    version = bare(module.version(ETCD))
    base = f"{GITHUB}/etcd-io/etcd/releases/download/v{version}"
    suffix = {"linux": "tar.gz", "darwin": "zip"}[site.system]
    return Tool(
        name="etcd",
        version=version,
        platform=site.platform,
        links={"bin/etcd": "etcd"},
        on_path=OnPath(command=("etcd", "--version"), accepts=exactly),
        release=Release(
            url=f"{base}/etcd-v{version}-{site.platform}.{suffix}",
            checksums=f"{base}/SHA256SUMS",
            members=(f"etcd-v{version}-{site.platform}/etcd",),
        ),
        recipes=(GoBuild(module=module, package=ETCD, output="etcd"),),
    )


def kubernetes(site: Site, name: str, ask: tuple[str, ...], accepts: Callable[[str, str], bool]) -> Tool:
    module = site.module("kube")
    version = bare(module.version(KUBERNETES))
    major, minor, _ = version.split(".")
    url = f"https://dl.k8s.io/release/v{version}/bin/{site.system}/{site.architecture}/{name}"
    # Unstamped servers answer /version with a placeholder that is no version, at which Kueue exits.
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return Tool(
        name=name,
        version=version,
        platform=site.platform,
        links={f"bin/{name}": name},
        on_path=OnPath(command=(name, *ask), accepts=accepts),
        release=Release(url=url, checksums=f"{url}.sha256"),
        recipes=(
            GoBuild(
                module=module,
                package=f"{KUBERNETES}/cmd/{name}",
                output=name,
                stamps={f"{package}.{key}": value for package in packages for key, value in values.items()},
            ),
        ),
    )


def _kwok(site: Site) -> Tool:
    module = site.module("kube")
    return Tool(
        name="kwok",
        version=bare(module.version(KWOK)),
        platform=site.platform,
        links={"bin/kwok": "kwok"},
        on_path=OnPath(command=("kwok", "--version"), accepts=exactly),
        recipes=(GoBuild(module=module, package=f"{KWOK}/cmd/kwok", output="kwok"),),
    )


def _kwok_stages(site: Site) -> Tool:
    module = site.module("kube")
    return Tool(
        name="kwok-stages",
        version=bare(module.version(KWOK)),
        platform="any",
        links={"kwok-stages": ""},
        recipes=(
            ModuleFiles(module=module, path=KWOK, files={f"kustomize/stage/{name}": name for name in KWOK_STAGES}),
        ),
    )


def _kueue(site: Site) -> Tool:
    module = site.module("kube")
    version = module.version(KUEUE)
    return Tool(
        name="kueue",
        version=bare(version),
        platform=site.platform,
        links={"bin/kueue": "kueue"},
        recipes=(
            GoBuild(
                module=module,
                package=f"{KUEUE}/cmd/kueue",
                output="kueue",
                stamps={f"{KUEUE}/pkg/version.GitVersion": version},
            ),
        ),
    )
