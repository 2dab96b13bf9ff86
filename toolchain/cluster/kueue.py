"""Runs Kueue's controller as a process while its Helm release is in the cluster.

The Deployment's pod is on a simulated node and so runs no container. While the Deployment has replicas, this module
runs the real controller as a process of this machine. The process uses the ServiceAccount and the configuration of the
Helm release. The module changes the webhooks' Service to an ExternalName. Therefore the API server can connect to
Kueue's process. Kueue's pod becomes Ready when Kueue's process is ready. When the Deployment is scaled to 0, Kueue's
process ends.

Each upgrade of the release restores the release's Service and APIServices. Therefore this module changes the Service
and the APIServices again at each step.
"""

import base64
import math
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from toolchain.cluster import kubeconfig, simulated
from toolchain.cluster.api import JSON_PATCH, ClusterApi
from toolchain.cluster.control_plane import Ports
from toolchain.cluster.errors import ClusterError
from toolchain.cluster.paths import Folder, program
from toolchain.cluster.process import ChildProcess, Command

_LABELLED = "labelSelector=" + "%2C".join(f"{key}%3D{value}" for key, value in simulated.KUEUE.items())
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SERVICES_OF_APIS = "/apis/apiregistration.k8s.io/v1/apiservices"
_TOKEN_SECONDS = 7 * 24 * 3600
_PROBE_SECONDS = 2
_STEADY_STEPS = 10
# A process that is not ready after this number of seconds is replaced. Kueue waits up to 9 minutes between two checks
# of its certificate, so a late certificate can cost more time than a restart.
_START_SECONDS = 120


class KueueRunner:
    """Starts and stops Kueue's process, depending on the state of the Helm release.

    While Kueue is ready or not installed, most steps only compare the Deployment and the Service with those of the step
    before. An upgrade of the release changes the Deployment or the Service.
    """

    def __init__(self, api: ClusterApi, folder: Folder, ports: Ports) -> None:
        self._api, self._folder, self._ports = api, folder, ports
        self._process: ChildProcess | None = None
        self._revision: tuple[str, int] | None = None
        self._started = math.inf
        self._steady_steps = 0

    def step(self) -> None:
        """Makes one step: adapts the process and the release's objects to the current state.

        Raises OSError if the API server cannot be reached, and ClusterError if the API server refuses a request.
        """
        deployment = _deployment(self._api)
        if self._steady_steps and self._is_unchanged(deployment):
            self._steady_steps -= 1
            return
        self._steady_steps = 0
        self._remove_visibility()
        if deployment is None or deployment["spec"]["replicas"] == 0:
            self.stop()
            self._steady_steps = _STEADY_STEPS if deployment is None else 0
            return
        metadata = deployment["metadata"]
        self._redirect(metadata["namespace"], _service(metadata))
        if not self._runs(deployment):
            self.stop()
        if self._process is None and self._has_ports(_service(metadata)):
            self._process, self._revision = self._start(deployment), _revision(deployment)
            self._started = time.monotonic()
        if self._process is not None and self._copy_certificate(deployment) and self._is_ready():
            for pod in unready_pods(self._api, deployment):
                self._api.patch(pod, {"metadata": {"annotations": {simulated.READY: "true"}}})
            self._started, self._steady_steps = math.inf, _STEADY_STEPS
        if time.monotonic() - self._started > _START_SECONDS:
            self.stop()
            raise ClusterError(
                f"not ready within {_START_SECONDS} s; a new process starts:\n{self._folder.tail('kueue')}"
            )

    @property
    def pause_seconds(self) -> float:
        """The seconds until the next step."""
        return 2 if self._steady_steps else 0.5

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
        self._process, self._started = None, math.inf

    def _is_unchanged(self, deployment: Mapping[str, Any] | None) -> bool:
        if deployment is None:
            return self._process is None
        return self._runs(deployment) and self._is_redirected(deployment)

    def _runs(self, deployment: Mapping[str, Any]) -> bool:
        return self._process is not None and self._process.running and self._revision == _revision(deployment)

    def _remove_visibility(self) -> None:
        """Deletes the APIServices of Kueue's visibility API.

        Kueue's process does not serve the visibility API, because this API would need certificates in a fixed folder
        below /. Kubernetes deletes a namespace only if every registered API responds.
        """
        for version in ("v1beta1", "v1beta2"):
            self._api.request("DELETE", f"{_SERVICES_OF_APIS}/{version}.visibility.kueue.x-k8s.io")

    def _redirect(self, namespace: str, service: str) -> None:
        """Changes the Service of the webhooks, so that the API server calls the process on this machine."""
        self._api.patch(
            f"/api/v1/namespaces/{namespace}/services/{service}",
            {"spec": {"type": "ExternalName", "externalName": "localhost", "clusterIP": None, "clusterIPs": None}},
        )

    def _is_redirected(self, deployment: Mapping[str, Any]) -> bool:
        metadata = deployment["metadata"]
        service = self._api.get(f"/api/v1/namespaces/{metadata['namespace']}/services/{_service(metadata)}") or {}
        return bool(service.get("spec", {}).get("type") == "ExternalName")

    def _has_ports(self, service: str) -> bool:
        """Writes the port of Kueue's process into all webhooks. If the webhooks do not exist yet, returns False."""
        mutating, validating, definitions = (
            list(self._patches(path, service))
            for path in (
                f"{_ADMISSION}/mutatingwebhookconfigurations",
                f"{_ADMISSION}/validatingwebhookconfigurations",
                _DEFINITIONS,
            )
        )
        if not (mutating and validating and definitions):
            return False
        for path, patch in (*mutating, *validating, *definitions):
            self._api.patch(path, patch, JSON_PATCH)
        return True

    def _patches(self, collection: str, service: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        for item in (self._api.get(collection) or {"items": []})["items"]:
            calls = [
                {"op": "add", "path": f"{path}/service/port", "value": self._ports.webhook}
                for path, client in _clients(item)
                if client.get("service", {}).get("name") == service
            ]
            if calls:
                yield f"{collection}/{item['metadata']['name']}", calls

    def _start(self, deployment: Mapping[str, Any]) -> ChildProcess:
        namespace = deployment["metadata"]["namespace"]
        spec = deployment["spec"]["template"]["spec"]
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts/{spec['serviceAccountName']}/token"
        request = {"spec": {"expirationSeconds": _TOKEN_SECONDS}}
        token = self._api.create(
            account, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, **request}
        )
        access, config = self._folder.kubeconfig_of("kueue"), self._folder.path / "kueue.yaml"
        kubeconfig.write(access, self._api.server, self._folder.ca, {"token": token["status"]["token"]})
        config.write_text(yaml.safe_dump(self._configuration(namespace, _volume(spec, "configMap")["name"])))
        self._certificates.mkdir(exist_ok=True)
        arguments = (program("kueue"), f"--config={config}", f"--kubeconfig={access}", "--zap-log-level=2")
        return ChildProcess.start(Command(name="kueue", arguments=arguments), self._folder)

    def _configuration(self, namespace: str, config_map: str) -> dict[str, Any]:
        """Returns the release's configuration, changed so that Kueue can run as a process on this machine."""
        found = self._api.get(f"/api/v1/namespaces/{namespace}/configmaps/{config_map}")
        if found is None:
            raise ClusterError(f"Kueue's ConfigMap {namespace}/{config_map} is gone")
        config: dict[str, Any] = yaml.safe_load(found["data"]["controller_manager_config.yaml"])
        address = "127.0.0.1"
        return {
            **config,
            "namespace": namespace,
            "health": {"healthProbeBindAddress": f"{address}:{self._ports.kueue_health}"},
            "metrics": {**config["metrics"], "bindAddress": f"{address}:{self._ports.kueue_metrics}"},
            "webhook": {"host": address, "port": self._ports.webhook, "certDir": str(self._certificates)},
            "leaderElection": {"leaderElect": False},
            "featureGates": {**config.get("featureGates", {}), "VisibilityOnDemand": False},
        }

    @property
    def _certificates(self) -> Path:
        return self._folder.path / "kueue-certificates"

    def _copy_certificate(self, deployment: Mapping[str, Any]) -> bool:
        """Writes the data of the certificate's Secret into files. If the Secret has no data, returns False."""
        metadata, spec = deployment["metadata"], deployment["spec"]["template"]["spec"]
        name = _volume(spec, "secret")["secretName"]
        secret = self._api.get(f"/api/v1/namespaces/{metadata['namespace']}/secrets/{name}") or {}
        for key, value in secret.get("data", {}).items():
            content, file = base64.b64decode(value), self._certificates / key
            if not file.exists() or file.read_bytes() != content:
                file.write_bytes(content)
        return bool(secret.get("data"))

    def _is_ready(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(self._probe, timeout=_PROBE_SECONDS) as answer:  # noqa: S310
            return bool(answer.status == 200)
        return False

    @property
    def _probe(self) -> str:
        return f"http://127.0.0.1:{self._ports.kueue_health}/readyz"


def unready_pods(api: ClusterApi, deployment: Mapping[str, Any]) -> list[str]:
    """Returns the paths of Kueue's pods that do not show yet that Kueue is ready.

    A change of the Deployment creates a pod that waits for a new process. If the Deployment is no longer the given one,
    the list is empty.
    """
    path = f"/api/v1/namespaces/{deployment['metadata']['namespace']}/pods"
    pods = (api.get(f"{path}?{_LABELLED}") or {"items": []})["items"]
    names = [pod["metadata"]["name"] for pod in pods if simulated.READY not in pod["metadata"].get("annotations", {})]
    current = _deployment(api) if names else None
    if current is None or _revision(current) != _revision(deployment):
        return []
    return [f"{path}/{name}" for name in names]


def _deployment(api: ClusterApi) -> Mapping[str, Any] | None:
    found = api.get(f"/apis/apps/v1/deployments?{_LABELLED}") or {"items": []}
    return next((item for item in found["items"] if "deletionTimestamp" not in item["metadata"]), None)


def _revision(deployment: Mapping[str, Any]) -> tuple[str, int]:
    return deployment["metadata"]["uid"], deployment["metadata"]["generation"]


def _service(metadata: Mapping[str, Any]) -> str:
    return f"{metadata['name'].removesuffix('-controller-manager')}-webhook-service"


def _clients(item: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for index, webhook in enumerate(item.get("webhooks", [])):
        yield f"/webhooks/{index}/clientConfig", webhook["clientConfig"]
    conversion = item.get("spec", {}).get("conversion", {}).get("webhook", {})
    if "clientConfig" in conversion:
        yield "/spec/conversion/webhook/clientConfig", conversion["clientConfig"]


def _volume(pod_spec: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Returns the source of the pod's first volume of the given kind."""
    source: Mapping[str, Any] = next(volume[kind] for volume in pod_spec["volumes"] if kind in volume)
    return source
