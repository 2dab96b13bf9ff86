"""What the extender's lists cost in memory: `python -m tests.benchmarks.informers`, which fails above its limit.

A process lists a made-up cluster page by page, as the extender does when it starts and at each audit. Its pods have the
7.6 KB that real ones have, managed fields and all. The peak is of the whole process. The table goes into
docs/benchmarks.md.
"""

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agents.extender.cache.cache import Cache
from agents.extender.cache.informers import SLICES, Informers
from agents.extender.cache.pod_info import allocated
from agents.kube.client import Api, Endpoint
from agents.kube.nodes import NODES
from agents.kube.pods import BOUND, PODS
from agents.kube.transport import ApiRequest, ApiResponse, Stream
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from tenancy.ledger import Ledger, Pool
from tenancy.names import Names

SIZES = (5_000, 10_000, 20_000)
PODS_A_NODE, GPU_PODS_A_NODE = 50, 10
# The extender's container has so much (components/agents/scheduler.py).
LIMIT_MIB = 256
NAMES = Names("example.com")
POOL = Pool(name="cards", node_selector={"pool": "cards"}, nodes=1, device_count=4, memory_mib=24576, floor_mib=1024)


class MadeUp:
    """A Transport to a cluster of which no more than the page that is asked for is ever made."""

    def __init__(self, pods: int) -> None:
        self._pods = pods
        self._nodes = -(-pods // PODS_A_NODE)

    def send(self, request: ApiRequest) -> ApiResponse:
        split = urlsplit(request.path)
        query = {key: values[0] for key, values in parse_qs(split.query).items()}
        make, count = {PODS: (pod, self._pods), NODES: (node, self._nodes), SLICES: (devices, self._nodes)}[split.path]
        start, limit = int(query.get("continue", 0)), int(query["limit"])
        end = min(start + limit, count)
        metadata = {"resourceVersion": "1", **({"continue": str(end)} if end < count else {})}
        body = json.dumps({"metadata": metadata, "items": [make(number) for number in range(start, end)]}).encode()
        return ApiResponse(status=200, reason="OK", headers={}, body=body)

    def open(self, request: ApiRequest) -> Stream | ApiResponse:
        raise NotImplementedError

    def close(self) -> None:
        pass


def pod(number: int) -> dict[str, Any]:
    """7.6 KB as JSON; one in five has GPU memory."""
    gpu = number % PODS_A_NODE < GPU_PODS_A_NODE
    limits = {"cpu": "1", "memory": "1Gi"} | ({NAMES.gpumem: "2000"} if gpu else {})
    environment = [{"name": f"SETTING_{i}", "value": "x" * 60} for i in range(40)]
    fields = {f"f:field-{i}": {} for i in range(87)}
    managed = [{"manager": manager, "operation": "Update", "fieldsV1": fields} for manager in ("kubelet", "helm")]
    placed = {NAMES.device_index: "0", NAMES.device_uuid: f"GPU-{number}", NAMES.device_mib: "2000"}
    return {
        "metadata": {
            "namespace": f"team-{number % 20}",
            "name": f"pod-{number}",
            "uid": f"00000000-0000-0000-0000-{number:012d}",
            "annotations": placed if gpu else {},
            "managedFields": managed,
        },
        "spec": {
            "nodeName": f"node-{number // PODS_A_NODE}",
            "containers": [{"name": "main", "env": environment, "resources": {"limits": limits, "requests": limits}}],
        },
        "status": {"phase": "Running"},
    }


def node(number: int) -> dict[str, Any]:
    labels = {"pool": "cards", **{f"label-{i}": "x" * 30 for i in range(30)}}
    return {"metadata": {"name": f"node-{number}", "labels": labels}, "status": {"allocatable": {"cpu": "64"}}}


def devices(number: int) -> dict[str, Any]:
    each = [
        {
            "name": f"gpu-{index}",
            "attributes": {"uuid": {"string": f"GPU-{number}-{index}"}, "index": {"int": index}},
            "capacity": {"memory": {"value": "24576Mi"}},
        }
        for index in range(4)
    ]
    name = f"node-{number}"
    published = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": name},
        "spec": {"driver": NAMES.device_driver, "nodeName": name, "pool": published, "devices": each},
    }


def listed(pods: int) -> None:
    """Lists, relists and audits a cluster of that many pods; prints the peak of this process in MiB."""
    with tempfile.NamedTemporaryFile() as token:
        endpoint = Endpoint(host="", port=0, token_file=Path(token.name), ca_file=Path())
        api = Api(endpoint, clock=Clock(), transport=MadeUp(pods))
        cache = Cache()
        informers = Informers(api=api, cache=cache, ledger_namespace="", clock=Clock(), log=Log("extender", sys.stderr))
        informers.ledger = Ledger(domain="example.com", pools=(POOL,))
        for _ in range(2):
            informers.list_all()
            cache.compare([p for item in api.items(PODS, **BOUND) if (p := allocated(item, NAMES))], 0.0)
    assert len(cache.snapshot()) == -(-pods // PODS_A_NODE)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def peaks() -> Mapping[int, int]:
    """MiB by number of pods, each in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.informers"]
    return {
        pods: int(subprocess.run([*command, str(pods)], capture_output=True, text=True, check=True).stdout)
        for pods in SIZES
    }


def main() -> None:
    if len(sys.argv) > 1:
        listed(int(sys.argv[1]))
        return
    found = peaks()
    print("| pods of 7.6 KB | as JSON, MiB | peak of the process, MiB |")
    print("|---|---|---|")
    for pods, peak in found.items():
        print(f"| {pods:,} | {pods * len(json.dumps(pod(0))) // 2**20} | {peak} |")
    if max(found.values()) > LIMIT_MIB:
        raise SystemExit(f"above the container's limit of {LIMIT_MIB} MiB")


if __name__ == "__main__":
    main()
