"""Finds the cluster that a command would reach, by the same rules as kubectl.

The module reads kubeconfigs without kubectl, because a preview must work on a machine without kubectl. Source:
k8s.io/client-go tools/clientcmd/loader.go (ClientConfigLoadingRules.Load). If several files have the same entry, the
first file wins. A kubeconfig that does not exist is ignored.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml


class KubeconfigError(ValueError):
    """Raised if there is no current cluster. The message of the error is a whole sentence."""


@dataclass(frozen=True)
class CurrentCluster:
    """The current context, and the address of its API server.

    `proxy` is the URL of the proxy through which the server is reached, if the file names a proxy.
    """

    context: str
    server: str
    proxy: str | None = None

    def __str__(self) -> str:
        return f"context {self.context} at {self.server}"


def sources(environment: Mapping[str, str], given: str = "") -> tuple[Path | str, ...]:
    """Returns the kubeconfigs, each as a path or as text.

    `given` is the value of the stack's kubernetes:kubeconfig, which is a path or text.
    """
    if given:
        return (Path(given) if "\n" not in given and Path(given).is_file() else given,)
    listed = [name for name in environment.get("KUBECONFIG", "").split(os.pathsep) if name]
    return tuple(Path(name) for name in listed) or (Path(environment.get("HOME", "~")) / ".kube" / "config",)


def current(configs: Sequence[Path | str], context: str = "") -> CurrentCluster:
    """Returns the cluster of a context. The default is the kubeconfig's current context. Raises KubeconfigError."""
    where = ", ".join(_name(config) for config in configs)
    if not any(isinstance(config, str) or config.exists() for config in configs):
        raise KubeconfigError(f"no cluster: {where} is not there; set KUBECONFIG, or start a throw-away: make cluster")
    contexts, clusters = dict[str, Any](), dict[str, Any]()
    for config in configs:
        try:
            found = yaml.safe_load(_text(config))
            context = context or found.get("current-context") or ""
            contexts = {each["name"]: each["context"] for each in found.get("contexts") or ()} | contexts
            clusters = {each["name"]: each["cluster"] for each in found.get("clusters") or ()} | clusters
        except (OSError, ValueError, yaml.YAMLError, AttributeError, KeyError, TypeError):
            raise KubeconfigError(f"no cluster: {_name(config)} cannot be read as a kubeconfig") from None
    if not context:
        raise KubeconfigError(f"no cluster: {where} names no current-context; run kubectl config use-context")
    named: dict[str, Any] = contexts.get(context) or {}
    cluster = clusters.get(named.get("cluster", "")) or {}
    if not cluster.get("server"):
        raise KubeconfigError(f"no cluster: {where} has no server for the context {context}")
    return CurrentCluster(context, cluster["server"], cluster.get("proxy-url"))


def _name(config: Path | str) -> str:
    return "kubernetes:kubeconfig" if isinstance(config, str) else str(config)


def _text(config: Path | str) -> str:
    if isinstance(config, str):
        return config
    return config.read_text(encoding="utf-8") if config.exists() else "{}"


def check_reachable(cluster: CurrentCluster, environment: Mapping[str, str], timeout_seconds: float = 3.0) -> None:
    """Raises KubeconfigError if nothing listens at the server's address.

    If the API server is behind a proxy, tries no connection.
    """
    if cluster.proxy or environment.get("HTTPS_PROXY") or environment.get("https_proxy"):
        return
    address = urlsplit(cluster.server if "://" in cluster.server else f"https://{cluster.server}")
    try:
        port = address.port or (80 if address.scheme == "http" else 443)
        socket.create_connection((address.hostname or "", port), timeout_seconds).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise KubeconfigError(f"no cluster: {cluster} does not answer ({reason})") from None
