"""Which cluster a command would reach, as kubectl finds it.

Source: k8s.io/client-go tools/clientcmd/loader.go (ClientConfigLoadingRules.Load): of several files the first that says
something wins, and files that are not there are passed over.
"""

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml


class KubeconfigError(ValueError):
    """There is no current cluster; the message is a sentence."""


@dataclass(frozen=True)
class CurrentCluster:
    """The current context and the server behind it; `proxy` is what lies between, if the file names one."""

    context: str
    server: str
    proxy: str | None = None

    def __str__(self) -> str:
        return f"context {self.context} at {self.server}"


def files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """KUBECONFIG's files, else ~/.kube/config."""
    listed = [name for name in environment.get("KUBECONFIG", "").split(os.pathsep) if name]
    return tuple(Path(name) for name in listed) or (Path(environment.get("HOME", "~")) / ".kube" / "config",)


def current(paths: Sequence[Path]) -> CurrentCluster:
    """The cluster of the current context. Raises KubeconfigError."""
    configs = list(_documents(paths))
    where = ", ".join(map(str, paths))
    context = next((name for config in configs if (name := config.get("current-context"))), None)
    if not any(path.exists() for path in paths):
        raise KubeconfigError(f"no cluster: {where} is not there; set KUBECONFIG, or start a throw-away: make cluster")
    if context is None:
        raise KubeconfigError(f"no cluster: {where} names no current-context; run kubectl config use-context")
    cluster = _entry(configs, "contexts", "context", context).get("cluster")
    entry = _entry(configs, "clusters", "cluster", cluster)
    server, proxy = entry.get("server"), entry.get("proxy-url")
    if not server:
        raise KubeconfigError(f"no cluster: {where} has no server for the context {context}")
    return CurrentCluster(str(context), str(server), str(proxy) if proxy else None)


def reach(cluster: CurrentCluster, environment: Mapping[str, str], timeout_seconds: float = 3.0) -> None:
    """Raises KubeconfigError where nobody listens at the server's address. Behind a proxy nothing can be said."""
    if cluster.proxy or environment.get("HTTPS_PROXY") or environment.get("https_proxy"):
        return
    address = urlsplit(cluster.server if "://" in cluster.server else f"https://{cluster.server}")
    try:
        port = address.port or (80 if address.scheme == "http" else 443)
        socket.create_connection((address.hostname or "", port), timeout_seconds).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise KubeconfigError(f"no cluster: {cluster} does not answer ({reason})") from None


def _documents(paths: Sequence[Path]) -> Iterator[Mapping[str, Any]]:
    for path in paths:
        try:
            document = yaml.safe_load(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, yaml.YAMLError):
            raise KubeconfigError(f"no cluster: {path} cannot be read as YAML") from None
        if isinstance(document, Mapping):
            yield document


def _entry(configs: Sequence[Mapping[str, Any]], plural: str, singular: str, name: object) -> Mapping[str, Any]:
    """The named entry of the first file that has it; empty where none has."""
    lists = [config[plural] for config in configs if isinstance(config.get(plural), list)]
    entries = (entry for listed in lists for entry in listed if isinstance(entry, Mapping))
    found = next((entry.get(singular) for entry in entries if entry.get("name") == name), None)
    return found if isinstance(found, Mapping) else {}
