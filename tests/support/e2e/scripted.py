"""Serves HTTP endpoints on the real node. Tests can change the responses at any time.

The server is a pod, because pods cannot connect to this machine.
"""

from dataclasses import dataclass
from typing import Any

from tenancy import names
from tests.support.e2e.rollout import GPUMEM
from tests.support.waiting import eventually
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.image import agent_image

PORT = names.EXPORTER_PORT
_SERVER = """
import http.server, json, os, re, ssl, time, urllib.request
from pathlib import Path

MOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TLS = ssl.create_default_context(cafile=MOUNT / "ca.crt")
TLS.verify_flags &= ~ssl.VERIFY_X509_STRICT


def script():
    request = urllib.request.Request(os.environ["SCRIPT"])
    request.add_header("Authorization", "Bearer " + (MOUNT / "token").read_text())
    with urllib.request.urlopen(request, context=TLS, timeout=5) as answer:
        return json.load(answer)["data"]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        content = script().get(self.path.strip("/"))
        self.send_response(503 if content is None else 200)
        self.end_headers()
        age = f"sample_age_seconds {1 + time.time() % 0.9:.3f}"
        self.wfile.write(re.sub("sample_age_seconds [0-9.]+", age, content or "nothing is scripted").encode())


http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
"""


def quick(config: dict[str, Any]) -> None:
    """Changes prod for tests of the watchdog: it is quick, and a queue hands out what the T4 has beside its seats
    and its floor."""
    config["watchdog"] = {
        "armed": True,
        "minimum_age_seconds": 1,
        "evictions_per_hour": 100,
    }
    config["tenants"]["lab"] = {}
    queues = config["queues"]
    queues["flavors"]["t4-memory"] = {"pool": "t4"}
    queues["cluster_queues"]["memory-cq"] = {"quotas": {"t4-memory": {GPUMEM: {"nominal": 480}}}}
    queues["local_queues"]["lab-memory"] = {"tenant": "lab", "cluster_queue": "memory-cq"}


@dataclass(frozen=True)
class Scripted:
    cluster: HeldCluster
    namespace: str
    name: str
    port: int = PORT

    def _start(self) -> str:
        where, core = f"/namespaces/{self.namespace}", "/api/v1"
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        metadata = {"name": self.name}
        create = self.cluster.api.create
        create(f"{core}{where}/configmaps", {"metadata": metadata})
        create(f"{core}{where}/serviceaccounts", {"metadata": metadata})
        rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": [self.name]}
        create(f"{rbac}{where}/roles", {"metadata": metadata, "rules": [rule]})
        subject = {"kind": "ServiceAccount", **metadata, "namespace": self.namespace}
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", **metadata}
        create(f"{rbac}{where}/rolebindings", {"metadata": metadata, "roleRef": ref, "subjects": [subject]})
        create(f"{core}{where}/pods", {"metadata": metadata, "spec": self._pod()})
        address: str = eventually(self._address, f"{self.name} runs")
        return address

    def stand_in_for_the_exporter(self, node: str, port: int) -> None:
        """Starts the server, and gives its address to the exporter's pod of a simulated node. `port` is the port that
        the stack declares for exporters.
        """
        address, path = self._start(), f"/api/v1/namespaces/{self.namespace}/pods"

        def exporter() -> str | None:
            for pod in (self.cluster.api.get(f"{path}?fieldSelector=spec.nodeName%3D{node}") or {"items": []})["items"]:
                ports = {each["containerPort"] for part in pod["spec"]["containers"] for each in part.get("ports", ())}
                if port in ports and "deletionTimestamp" not in pod["metadata"] and pod["status"].get("podIP"):
                    return str(pod["metadata"]["name"])
            return None

        name = eventually(exporter, "the node's exporter has an address")
        status = {"podIP": address, "podIPs": [{"ip": address}]}
        self.cluster.api.patch(f"{path}/{name}/status", {"status": status})

    def change(self, **script: str | None) -> None:
        self.cluster.api.patch(f"/api/v1/namespaces/{self.namespace}/configmaps/{self.name}", {"data": script})

    def _pod(self) -> dict[str, Any]:
        source = f"https://$(KUBERNETES_SERVICE_HOST)/api/v1/namespaces/{self.namespace}/configmaps/{self.name}"
        container = {
            "name": "server",
            "image": agent_image(),
            "command": ["python", "-I", "-c", _SERVER],
            "env": [{"name": "SCRIPT", "value": source}, {"name": "PORT", "value": str(self.port)}],
            "readinessProbe": {"tcpSocket": {"port": self.port}, "periodSeconds": 1},
        }
        return {"serviceAccountName": self.name, "terminationGracePeriodSeconds": 0, "containers": [container]}

    def _address(self) -> str | None:
        pod = self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/pods/{self.name}") or {}
        status = pod.get("status", {})
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ()))
        return status.get("podIP") if ready else None
