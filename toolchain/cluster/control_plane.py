"""Declares the command lines and certificates of etcd, API server, controller manager and scheduler."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from toolchain.cluster import certificates, kubeconfig
from toolchain.cluster.paths import Folder, program
from toolchain.cluster.process import Command, free_ports

SERVICE_RANGE = "10.0.0.0/24"
SERVICE_IP = "10.0.0.1"  # The Service `kubernetes` has the first address of the Service IP range.

# The API server reaches the kubelet by the node's name. "localhost" resolves to this machine without DNS.
NODE = "localhost"
# Maps each kubeconfig to its user and the user's group.
USERS = {
    "admin": ("admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", None),
    "kube-scheduler": ("system:kube-scheduler", None),
    "kwok": ("kwok", None),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
}
SERVERS = {
    "kube-apiserver": ("127.0.0.1", "localhost", SERVICE_IP, "kubernetes", "kubernetes.default.svc"),
    "kubelet-server": ("127.0.0.1", NODE),
    "kubelet-client": (),
}
# The audit log has a JSON object for each request. The API server writes the audit log's object before it sends the
# response. A watch has two objects in the audit log: one when the watch begins (stage ResponseStarted) and one when the
# watch ends.
AUDIT = "audit"
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True)
class Ports:
    """The ports on which the parts of the cluster listen, all on 127.0.0.1."""

    etcd: int
    etcd_peer: int
    api_server: int
    controller_manager: int
    scheduler: int
    kubelet: int
    webhook: int
    kueue_health: int
    kueue_metrics: int

    @classmethod
    def free(cls) -> "Ports":
        return cls(*free_ports(9))


def write_credentials(folder: Folder, ports: Ports) -> None:
    """Writes the CA, a certificate for each server, and a kubeconfig for each user."""
    certificates.make_authority(folder.pki)
    for name, hosts in SERVERS.items():
        user, group = ("kube-apiserver", "system:masters") if name == "kubelet-client" else (name, None)
        certificates.issue(folder.pki, name, user=user, group=group, hosts=hosts)
    for name, (user, group) in USERS.items():
        certificates.issue(folder.pki, name, user=user, group=group)
        pair = {"client-certificate": f"{name}.crt", "client-key": f"{name}.key"}
        credentials = {part: str(folder.pki / file) for part, file in pair.items()}
        kubeconfig.write(folder.kubeconfig_of(name), f"https://127.0.0.1:{ports.api_server}", folder.ca, credentials)


def etcd(folder: Folder, ports: Ports) -> Command:
    clients = f"http://127.0.0.1:{ports.etcd}"
    return _command(
        "etcd",
        "--unsafe-no-fsync",
        f"--data-dir={folder.path / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls=http://127.0.0.1:{ports.etcd_peer}",
    )


def api_server(folder: Folder, ports: Ports, *, alone: bool) -> Command:
    """Returns the command of the API server.

    If `alone` is set, the cluster has no controller manager. Without a controller manager, the cluster has no
    ServiceAccounts. With `alone`, the API server admits pods without a ServiceAccount.
    """
    pki = folder.pki
    audit = folder.path / "audit.yaml"
    audit.write_text(json.dumps(AUDIT_POLICY))
    return _command(
        "kube-apiserver",
        f"--audit-policy-file={audit}",
        f"--audit-log-path={folder.log(AUDIT)}",
        "--audit-log-maxsize=100",  # MiB
        "--audit-log-maxbackup=1",
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        "--bind-address=127.0.0.1",
        # Without --advertise-address, the API server would use the address of the default route, which does not exist
        # on every machine.
        "--advertise-address=127.0.0.1",
        f"--secure-port={ports.api_server}",
        "--endpoint-reconciler-type=none",  # An Endpoints object must not contain a loopback address.
        *_tls(folder, "kube-apiserver"),
        f"--client-ca-file={folder.ca}",
        f"--kubelet-certificate-authority={folder.ca}",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        "--kubelet-preferred-address-types=Hostname",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--runtime-config=admissionregistration.k8s.io/v1beta1=true",  # Kubernetes before 1.36 serves only v1beta1
        *(["--disable-admission-plugins=ServiceAccount"] if alone else []),
        "--allow-privileged",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
    )


def controller_manager(folder: Folder, ports: Ports) -> Command:
    return _command(
        "kube-controller-manager",
        *_client(folder, "kube-controller-manager", ports.controller_manager),
        f"--service-account-private-key-file={folder.pki / 'sa.key'}",
        f"--root-ca-file={folder.ca}",
        "--use-service-account-credentials",
        "--leader-elect=false",
    )


def scheduler(folder: Folder, ports: Ports) -> Command:
    return _command("kube-scheduler", *_client(folder, "kube-scheduler", ports.scheduler), "--leader-elect=false")


def _client(folder: Folder, user: str, port: int) -> Iterator[str]:
    for flag in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"):
        yield f"--{flag}={folder.kubeconfig_of(user)}"
    yield "--bind-address=127.0.0.1"
    yield f"--secure-port={port}"
    yield f"--cert-dir={folder.pki}"


def _tls(folder: Folder, name: str) -> Iterator[str]:
    yield f"--tls-cert-file={folder.pki / f'{name}.crt'}"
    yield f"--tls-private-key-file={folder.pki / f'{name}.key'}"


def _command(name: str, *flags: str) -> Command:
    return Command(name=name, arguments=(program(name), *flags))
