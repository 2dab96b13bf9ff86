"""Which cluster a command would reach, as kubectl finds it.

Source: k8s.io/client-go tools/clientcmd/loader.go (ClientConfigLoadingRules.Load): of several files the first that says
something wins, and files that are not there are passed over.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


class KubeconfigError(ValueError):
    """There is no current cluster; the message is a sentence."""


@dataclass(frozen=True)
class Cluster:
    """The current context and the server behind it."""

    context: str
    server: str


def files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """KUBECONFIG's files, else ~/.kube/config."""
    listed = [name for name in environment.get("KUBECONFIG", "").split(os.pathsep) if name]
    return tuple(Path(name) for name in listed) or (Path(environment.get("HOME", "~")) / ".kube" / "config",)


def current(paths: Sequence[Path]) -> Cluster:
    """The cluster of the current context. Raises KubeconfigError."""
    configs = list(_documents(paths))
    where = ", ".join(map(str, paths))
    context = next((name for config in configs if (name := config.get("current-context"))), None)
    if context is None:
        raise KubeconfigError(f"no cluster: {where} names no current-context; run kubectl config use-context")
    cluster = _entry(configs, "contexts", "context", context).get("cluster")
    server = _entry(configs, "clusters", "cluster", cluster).get("server")
    if not server:
        raise KubeconfigError(f"no cluster: {where} has no server for the context {context}")
    return Cluster(str(context), str(server))


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
