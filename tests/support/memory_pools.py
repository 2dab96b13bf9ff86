"""Builds the memory pool of record 0001."""

import json
from typing import Any

from policy.rule import an_object
from tenancy import names
from tenancy.host_memory.pool import Disposable, HostMemoryPool, HostMemoryPools, Workload

INFERENCE = Workload(
    name="inference",
    tenant="inference",
    priority="homelab-critical",
    request_mib=8192,
    limit_mib=32768,
    steady_mib=5120,
    peak_mib=20480,
)
CLICKHOUSE = Workload(
    name="clickhouse",
    tenant="signoz",
    priority="homelab-critical",
    request_mib=5120,
    limit_mib=6144,
    steady_mib=5120,
    peak_mib=5120,
)
MICROVM = Disposable(
    name="agent-microvm",
    tenant="agents",
    priority="homelab-disposable",
    pods_least=1,
    pods_most=24,
    resident_least_mib=512,
    resident_most_mib=1024,
)
NODE_4 = HostMemoryPool(
    name="node-4",
    node_selector={"kubernetes.io/hostname": "node-4"},
    memory_mib=62464,
    allocatable_mib=62364,
    eviction_threshold_mib=100,
    workloads=(INFERENCE, CLICKHOUSE),
    disposable=(MICROVM,),
)


def host_memory_object(*pools: HostMemoryPool) -> dict[str, Any]:
    data = {names.HOST_MEMORY_POOLS_KEY: json.dumps(HostMemoryPools(pools=pools or (NODE_4,)).to_data())}
    return {**an_object("v1", "ConfigMap", names.HOST_MEMORY_POOLS, "gpu-tenancy-system"), "data": data}
