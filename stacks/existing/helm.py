"""Reads Helm's records of Kueue, which Pulumi's provider writes, because it contains Helm."""

import base64
import gzip
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from agents.kube.errors import Object
from stacks.cluster import Cluster
from stacks.existing.objects import Identity
from tenancy.workload import map_at, maps_at

KUEUES_DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterqueues.kueue.x-k8s.io"
_OF_KUEUE = "owner=helm,name=kueue"
_PROVIDER = "pulumi"  # The provider's name in the managed fields begins with this.
_INSTALLED = "deployed"
_UPGRADES = ("pending-upgrade", "pending-rollback")


@dataclass(frozen=True)
class Installation:
    """The Kueue of a stack, as Helm knows it.

    `records` are Helm's records, the last one first. With `is_unrecorded`, Kueue is there without any record. `urn` is
    the URN of the release in the state, or empty if the state lacks it.
    """

    records: Sequence[Object] = ()
    is_unrecorded: bool = False
    urn: str = ""

    @property
    def is_unknown(self) -> bool:
        """True if the state lacks the chart that Helm has installed."""
        return bool(self.records) and not self.urn

    def differs_from(self, outputs: Mapping[str, Any]) -> bool:
        """Returns True if Helm has done something since the last complete run, with the outputs in the state."""
        seen = outputs.get("status") or {}
        return [(int(seen.get("revision", 0)), str(seen.get("status")))] != [*map(_last, self.records[:1])]

    def settle(self, cluster: Cluster) -> bool:
        """Ends an interrupted upgrade or removal of the Kueue in the state. Returns True if there was one.

        Helm would refuse to upgrade such a release. After an interrupted upgrade, Helm forgets the upgrade. An
        interrupted removal is completed. Raises EngineError.
        """
        if not self.records or not self.urn or _last(self.records[0])[1] == _INSTALLED:
            return False
        is_upgrade = _last(self.records[0])[1] in _UPGRADES
        if not is_upgrade:
            self.remove_the_chart(cluster)
        self.forget(cluster, self.records[:1] if is_upgrade else self.records)
        return True

    def remove_the_chart(self, cluster: Cluster) -> None:
        """Deletes the objects that Helm has installed, or was about to install. Raises EngineError."""
        packed = self.records[0]["data"]["release"]
        release = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(packed))))
        cluster.delete(each for each in yaml.safe_load_all(release["manifest"]) if each)

    def forget(self, cluster: Cluster, records: Sequence[Object]) -> None:
        metadata = [each["metadata"] for each in records]
        cluster.delete(Identity("Secret", each["namespace"], each["name"], "v1").manifest for each in metadata)


def installation(cluster: Cluster, homes: Collection[str], urn: str) -> Installation:
    """Returns what Helm knows of the Kueue in one of the namespaces. Raises the errors of the cluster."""
    paths = [f"/api/v1/namespaces/{home}/secrets" for home in homes]
    secrets = [each for path in paths for each in cluster.items(path, labelSelector=_OF_KUEUE)]
    records = sorted(filter(_is_own, secrets), key=_last, reverse=True)
    definition = cluster.find(KUEUES_DEFINITION) if homes and not secrets else None
    annotations = map_at(definition or {}, "metadata", "annotations")
    return Installation(records, annotations.get("meta.helm.sh/release-namespace") in homes, urn)


def _is_own(secret: Object) -> bool:
    managers = (str(each.get("manager", "")) for each in maps_at(secret, "metadata", "managedFields"))
    return any(name.startswith(_PROVIDER) for name in managers)


def _last(record: Object) -> tuple[int, str]:
    """Returns the revision and the status of a record."""
    labels = record["metadata"]["labels"]
    return int(labels["version"]), str(labels["status"])
