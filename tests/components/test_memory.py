from components.memory import DisposableSpec, MemoryPoolSpec, OversubscribedSpec, pod_fragments, tenants_by_priority

POOL = MemoryPoolSpec(
    node_selector={"kubernetes.io/hostname": "node-4"},
    allocatable_mib=62464,
    workloads={
        "inference": OversubscribedSpec(
            tenant="ml", priority="critical", request_mib=8192, limit_mib=32768, steady_mib=5120, peak_mib=20480
        ),
        "database": OversubscribedSpec(
            tenant="data", priority="critical", request_mib=5000, limit_mib=6000, steady_mib=5000, peak_mib=5000
        ),
    },
    disposable={"microvm": DisposableSpec(tenant="agents", priority="disposable")},
)


def test_a_workload_reserves_its_steady_state_and_peaks_into_slack() -> None:
    assert pod_fragments(POOL)["inference"] == {
        "nodeSelector": {"kubernetes.io/hostname": "node-4"},
        "priorityClassName": "critical",
        "resources": {"requests": {"memory": "8Gi"}, "limits": {"memory": "32Gi"}},
    }


def test_memory_is_written_as_the_api_writes_it() -> None:
    assert pod_fragments(POOL)["database"]["resources"] == {
        "requests": {"memory": "5000Mi"},
        "limits": {"memory": "6000Mi"},
    }


def test_a_disposable_pod_is_best_effort() -> None:
    assert pod_fragments(POOL)["microvm"] == {
        "nodeSelector": {"kubernetes.io/hostname": "node-4"},
        "priorityClassName": "disposable",
        "resources": {},
    }


def test_the_classes_belong_to_the_tenants_that_the_pools_name() -> None:
    assert tenants_by_priority({"node-4": POOL, "node-5": POOL}) == {
        "critical": {"ml", "data"},
        "disposable": {"agents"},
    }
    assert tenants_by_priority({}) == {}
