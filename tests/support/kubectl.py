"""A fake of the API server that `kubectl gpumem` reads."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from agents.kube.client import ApiError, Object
from agents.kube.nodes import NODES
from agents.kube.pods import PODS
from agents.kube.slices import SLICES
from tenancy.choices import Sharing
from tenancy.ledger import AdmissionTerms, Ledger, OnDemand, Pool, QueueQuota, Seat
from tenancy.names import EXPORTER, LABEL_NAME, LEDGER, LEDGER_KEY, node_agent_namespace
from tests.support.curves import T4_MIB, Use, answer
from tests.support.fake_cluster import NAMES, SYSTEM, T4

EXPORTERS = node_agent_namespace(SYSTEM)
NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
BATCH = Pool(name="batch", node_selector={"gpu": "whole"}, nodes=1, device_count=1, sharing=Sharing.WHOLE)
LEDGER_OF_PROD = Ledger(
    domain=NAMES.domain,
    pools=(T4, BATCH),
    seats=(
        Seat(name="immich-ml", tenant="immich", pool="t4", gpumem_mib=3000),
        Seat(name="immich-server", tenant="immich", pool="t4", gpumem_mib=1800),
        Seat(name="llama-swap", tenant="llama-swap", pool="t4", gpumem_mib=5000),
    ),
    on_demand=(OnDemand(name="tts", tenant="tts", pool="t4", need_mib=2048),),
    quotas=(QueueQuota(queue="gpu-cq", flavor="gpu-any", pool="batch", resource="nvidia.com/gpu", nominal=1),),
    queue_tenants=("team-a",),
    admission=AdmissionTerms(gpu_priority="gpu-workload", priorities={"gpu-workload": ()}, own=(SYSTEM,), devices=1),
)


@dataclass
class FakeApi:
    objects: dict[str, Object] = field(default_factory=dict)
    lists: dict[str, list[Object]] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    tried: list[tuple[str, Object]] = field(default_factory=list)
    verdict: ApiError | None = None  # what a dry run raises
    now: datetime | None = NOW

    def get(self, path: str) -> Object:
        self._check(path, path in self.objects)
        return self.objects[path]

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        self._check(path, path in self.lists)
        wanted = _pairs(parameters.get("labelSelector", ""))
        fields = {key: value for key, value in _pairs(parameters.get("fieldSelector", "")).items() if "." not in key}
        for item in self.lists[path]:
            if wanted.items() <= (item["metadata"].get("labels") or {}).items() and fields.items() <= item.items():
                yield item

    def dry_run(self, path: str, manifest: Object) -> None:
        self.tried.append((path, manifest))
        if self.verdict is not None:
            raise self.verdict

    def ask(self, namespace: str, pod: str, port: int, path: str) -> bytes:
        page = f"{namespace}/{pod}:{port}{path}"
        self._check(page, page in self.texts)
        return self.texts[page]

    def _check(self, path: str, known: bool) -> None:
        if path in self.refused:
            raise ApiError(f"GET {path}", 403, "Forbidden", "may not")
        if not known:
            raise ApiError(f"GET {path}", 404, "NotFound", "not found")


def _pairs(selector: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in selector.split(",") if pair)


def api(
    pods: Iterable[Object] = (),
    nodes: Iterable[Object] | None = None,
    ledger: Ledger = LEDGER_OF_PROD,
    slices: Iterable[Object] | None = None,
) -> FakeApi:
    shown_nodes = [*nodes] if nodes is not None else [node("k8s-node1"), node("k8s-node2", "whole")]
    shown_slices = [*slices] if slices is not None else [device_slice("k8s-node1", 15360)]
    path = f"/api/v1/namespaces/{SYSTEM}/configmaps/{LEDGER}"
    stored = {
        "metadata": {"name": LEDGER, "resourceVersion": "1"},
        "data": {LEDGER_KEY: json.dumps(ledger.to_data())},
    }
    found = FakeApi({path: stored}, {NODES: shown_nodes, SLICES: shown_slices, PODS: [*pods]})
    for pod in found.lists[PODS]:
        own = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        found.lists.setdefault(own, []).append(pod)
        found.objects[f"{own}/{pod['metadata']['name']}"] = pod
        found.objects[own.removesuffix("/pods")] = {"metadata": {"name": pod["metadata"]["namespace"]}}
    found.lists.setdefault(f"/api/v1/namespaces/{EXPORTERS}/pods", [])
    return found


def node(name: str, kind: str = "t4", mib: int = 14000, **fields: Any) -> dict[str, Any]:
    allocatable = {"cpu": "8", NAMES.gpumem: str(mib)} if kind == "t4" else {"cpu": "8", "nvidia.com/gpu": "1"}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": {"gpu": kind}},
        "spec": fields.get("spec", {}),
        "status": {
            "allocatable": allocatable | fields.get("allocatable", {}),
            "conditions": [{"type": "Ready", "status": fields.get("ready", "True")}],
        },
    }


def device_slice(name: str, *sizes: int, taints: Iterable[str] = ()) -> dict[str, Any]:
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {"uuid": {"string": f"GPU-{name}-{index}"}, "index": {"int": index}},
            "capacity": {"memory": {"value": f"{mib}Mi"}},
            "taints": [{"key": NAMES.unhealthy_taint, "effect": effect} for effect in taints],
        }
        for index, mib in enumerate(sizes)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": f"{NAMES.device_driver}-{name}"},
        "spec": {"driver": NAMES.device_driver, "nodeName": name, "pool": pool, "devices": devices},
    }


def pod(
    name: str,
    mib: int = 0,
    namespace: str = "immich",
    *,
    on: str | None = None,
    devices: tuple[int, ...] = (0,),
    limits: dict[str, str] | None = None,
    status: dict[str, Any] | None = None,
    seat: str = "",
    **spec: Any,
) -> dict[str, Any]:
    wanted = ({NAMES.gpumem: str(mib)} if mib else {}) | (limits or {})
    if len(devices) > 1:
        wanted[NAMES.gpu_count] = str(len(devices))
    placed = {
        NAMES.device_index: ",".join(map(str, devices)),
        NAMES.device_uuid: ",".join(f"GPU-{on}-{index}" for index in devices),
    }
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": f"uid-{namespace}-{name}",
            "creationTimestamp": "2026-11-22T11:50:00Z",
            "annotations": placed if on and mib else {},
            **({"labels": {NAMES.seat_label: seat}} if seat else {}),
        },
        "spec": {
            "schedulerName": "gpu-tenancy",
            "containers": [{"name": "main", "resources": {"limits": wanted}}],
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {"phase": "Running" if on else "Pending", **(status or {})},
    }


def add_exporter(found: FakeApi, on: str, metrics: str, port: int = 9401) -> None:
    name = f"exporter-{on}"
    found.lists[f"/api/v1/namespaces/{EXPORTERS}/pods"].append(
        {
            "metadata": {
                "name": name,
                "namespace": EXPORTERS,
                "uid": f"uid-{name}",
                "creationTimestamp": "2026-11-22T11:00:00Z",
                "labels": {LABEL_NAME: EXPORTER},
            },
            "spec": {"nodeName": on, "containers": [{"name": "exporter", "ports": [{"containerPort": port}]}]},
            "status": {"phase": "Running", "podIP": f"10.0.0.{len(found.texts) + 1}"},
        }
    )
    found.texts[f"{EXPORTERS}/{name}:{port}/metrics"] = metrics.encode()


def page(on: str, free_mib: int, uses: dict[str, int]) -> str:
    users = []
    for who, mib in uses.items():
        namespace, _, name = who.partition("/")
        users.append(Use(namespace, name, f"uid-{namespace}-{name}", mib))
    driver_mib = T4_MIB - free_mib - sum(uses.values())
    return answer(users, age_seconds=1, driver_mib=driver_mib, uuid=f"GPU-{on}-0")
