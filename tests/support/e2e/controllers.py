"""Runs the controllers of JobSet, LeaderWorkerSet, Trainer, MPI and Ray as processes of this machine.

KubeRay's webhook does not run, because it only validates objects.
"""

import base64
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tenancy.frameworks import FRAMEWORKS, FrameworkName
from tests.support.e2e.access import await_right
from tests.support.e2e.apart import LOCALHOST, apart
from tests.support.waiting import eventually
from toolchain.cluster import certificates, kubeconfig
from toolchain.cluster.api import ClusterApi
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.paths import TOOLCHAIN, program
from toolchain.cluster.process import ChildProcess, Command, accepts_connections, free_ports

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
TOKEN_SECONDS = 3600
# controller-runtime reads a webhook's certificate from this folder.
CERTIFICATES = "k8s-webhook-server/serving-certs"


@dataclass(frozen=True)
class Controller:
    name: str
    kind: FrameworkName
    config: str | None = None
    pods: str | None = None
    arguments: Sequence[str] = ()
    has_a_fixed_port: bool = False


CONTROLLERS = (
    Controller("jobset", FrameworkName.JOBSET, "config.jobset.x-k8s.io", "jobset.sigs.k8s.io/jobset-name"),
    Controller("lws", FrameworkName.LEADER_WORKER_SET, "config.lws.x-k8s.io", "leaderworkerset.sigs.k8s.io/name"),
    Controller("trainer", FrameworkName.TRAIN_JOB, "config.trainer.kubeflow.org"),
    Controller(
        "mpi-operator",
        FrameworkName.MPI_JOB,
        arguments=("--kube-api-qps=100", "--kube-api-burst=100"),
        has_a_fixed_port=True,  # the port of the controller's health check
    ),
    Controller(
        "kuberay",
        FrameworkName.RAY_CLUSTER,
        arguments=("--metrics-addr=0", "--health-probe-bind-address=0", "--enable-leader-election=false"),
    ),
)
PROGRAMS = tuple(each.name for each in CONTROLLERS)


@contextmanager
def controllers(cluster: HeldCluster) -> Iterator[None]:
    for each in CONTROLLERS:
        _define(cluster.api, each)
    with ExitStack() as running:
        for each in CONTROLLERS:
            _start(cluster, each, running)
        yield


def _define(api: ClusterApi, controller: Controller) -> None:
    for manifest in _manifests(controller.name, "*.yaml"):
        if manifest.get("kind") == "CustomResourceDefinition":
            api.create(DEFINITIONS, manifest)
            spec = manifest["spec"]
            served = f"/apis/{spec['group']}/{spec['versions'][-1]['name']}/{spec['names']['plural']}"
            eventually(
                lambda served=served: api.request("GET", served).code == 200, f"{served} is served", pause_seconds=0.1
            )


def _start(cluster: HeldCluster, controller: Controller, running: ExitStack) -> None:
    (port,) = free_ports(1)
    folder = cluster.folder.path / controller.name
    (folder / CERTIFICATES).mkdir(parents=True)
    access = cluster.folder.kubeconfig_of(controller.name)
    token = administrator(cluster.api, FRAMEWORKS[controller.kind].accounts[0])
    kubeconfig.write(access, cluster.api.server, cluster.folder.ca, {"token": token})
    arguments = [program(controller.name), *controller.arguments]
    if controller.config:
        certificates.issue(cluster.folder.pki, controller.name, user=controller.name, hosts=(LOCALHOST,))
        for ending, name in (("crt", "tls.crt"), ("key", "tls.key")):
            shutil.copy(cluster.folder.pki / f"{controller.name}.{ending}", folder / CERTIFICATES / name)
        (folder / "config.yaml").write_text(yaml.safe_dump(_configuration(controller.config, port, folder)))
        arguments.append(f"--config={folder / 'config.yaml'}")
    if controller.has_a_fixed_port:
        arguments = [*apart(arguments, folder / "api.sock", int(cluster.api.server.rpartition(":")[2]))]
    command = Command(
        name=controller.name,
        arguments=arguments,
        environment={"KUBECONFIG": str(access), "TMPDIR": str(folder)},
        stop_signal=signal.SIGKILL,
    )
    process = ChildProcess.start(command, cluster.folder)
    running.callback(process.stop)
    for manifest in _manifests(controller.name, "webhooks/*.yaml"):
        _register(cluster, controller, manifest, port)
    if controller.config:
        eventually(lambda: _listens(process, port), f"the webhooks of {controller.name} respond")


def _listens(process: ChildProcess, port: int) -> bool:
    process.check()
    return accepts_connections(port)


def _manifests(name: str, files: str) -> Iterator[dict[str, Any]]:
    for path in sorted((TOOLCHAIN / "frameworks" / name).glob(files)):
        yield from filter(None, yaml.load_all(path.read_text(), yaml.CSafeLoader))


def _configuration(group: str, port: int, folder: Path) -> Mapping[str, Any]:
    of_trainer = "trainer" in group
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "Configuration",
        "webhook": {"host": LOCALHOST, "port": port} | ({} if of_trainer else {"certDir": str(folder / CERTIFICATES)}),
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": False},
        "certManagement" if of_trainer else "internalCertManagement": {"enable": False},
    }


def administrator(api: ClusterApi, account: str) -> str:
    *_, namespace, name = account.split(":")
    if api.get(f"/api/v1/namespaces/{namespace}") is None:
        api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.create(accounts, {"metadata": {"name": name}})
    group = "rbac.authorization.k8s.io"
    administrator = {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    api.create(BINDINGS, {"metadata": {"name": name}, "roleRef": administrator, "subjects": [subject]})
    await_right(api, account, "get", "secrets")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}}
    made = api.create(f"{accounts}/{name}/token", {**request, "spec": {"expirationSeconds": TOKEN_SECONDS}})
    return str(made["status"]["token"])


def _register(cluster: HeldCluster, controller: Controller, manifest: dict[str, Any], port: int) -> None:
    selected = {"matchExpressions": [{"key": controller.pods, "operator": "Exists"}]}
    authority = base64.b64encode(cluster.folder.ca.read_bytes()).decode()
    for webhook in manifest["webhooks"]:
        path = webhook["clientConfig"]["service"]["path"]
        webhook["clientConfig"] = {"url": f"https://{LOCALHOST}:{port}{path}", "caBundle": authority}
        if any("pods" in rule["resources"] for rule in webhook["rules"]):
            webhook["objectSelector"] = selected
    manifest["metadata"]["name"] = controller.name
    cluster.api.create(f"{ADMISSION}/{manifest['kind'].lower()}s", manifest)
