"""Tests the recording rules for seats and use, with promtool's rule tests and `kubectl gpumem bill`."""

from pathlib import Path

from components.monitoring.component import prometheus_rule
from tenancy.names import RECORDED_SEATS, RECORDED_USED
from tests.support.alerting import Expected, contradiction
from tests.support.healthy import ARGS, MIB, named


def seat(node: str, pool: str, tenant: str, name: str, mib: int) -> dict[str, str]:
    return {named("gpu_seat_memory_bytes", node=node, pool=pool, tenant=tenant, seat=name): f"{mib * MIB}x10"}


def use(node: str, tenant: str, pod: str, container: str, mib: int, *, values: str = "") -> dict[str, str]:
    labels = {"node": node, "uuid": f"GPU-{node}", "namespace": tenant, "pod": pod, "pod_uid": pod}
    return {named("gpu_pod_memory_used_bytes", **labels, container=container): values or f"{mib * MIB}x10"}


def floor(node: str, pool: str, mib: int) -> dict[str, str]:
    return {named("gpu_pool_memory_floor_bytes", node=node, pool=pool): f"{mib * MIB}x10"}


# The pool t4 has two nodes. The second pool has one node and no floor.
SERIES = {
    **seat("a", "t4", "immich", "immich-ml", 3000),
    **seat("b", "t4", "immich", "immich-ml", 3000),
    **seat("a", "t4", "immich", "immich-server", 1800),
    **seat("b", "t4", "immich", "immich-server", 1800),
    **seat("c", "l4", "chat", "chat", 9000),
    **floor("a", "t4", 1536),
    **floor("b", "t4", 1536),
    **floor("c", "l4", 0),
    **use("a", "immich", "immich-ml", "main", 2000),
    **use("a", "immich", "immich-ml", "sidecar", 100),
    **use("b", "immich", "immich-server", "main", 1200),
    **use("b", "tts", "tts", "main", 2048, values=f"_x2 {2048 * MIB}x8"),
    **use("c", "immich", "visitor", "main", 50),
    **use("a", "", "", "", 77),  # The use of a pod that the exporter does not know.
}
RECORDED = {
    RECORDED_SEATS: {("immich", "t4"): 4800, ("chat", "l4"): 9000},
    RECORDED_USED: {("immich", "t4"): 3300, ("tts", "t4"): 2048, ("immich", "l4"): 50},
}


def test_a_scrape_that_sets_the_namespace_does_not_become_the_tenant(tmp_path: Path) -> None:
    renamed = {
        series.replace('namespace="chat"', 'namespace="gpus-nodes", exported_namespace="chat"').replace(
            'container="', 'container="exporter", exported_container="'
        ): values
        for container in ("main", "sidecar")
        for series, values in use("a", "chat", "chat-0", container, 2000).items()
    }
    expected = Expected(
        expression=RECORDED_USED,
        at="5m",
        samples={named(RECORDED_USED, tenant="chat", pool="t4"): 4000 * MIB},
    )
    rules = prometheus_rule(ARGS)["spec"]
    assert contradiction(rules, tmp_path, (renamed | floor("a", "t4", 0), [expected])) is None


def test_seats_count_once_and_use_counts_where_it_is(tmp_path: Path) -> None:
    expected = [
        Expected(
            expression=name,
            at="5m",
            samples={named(name, tenant=tenant, pool=pool): mib * MIB for (tenant, pool), mib in by.items()},
        )
        for name, by in RECORDED.items()
    ]
    rules = prometheus_rule(ARGS)["spec"]
    assert contradiction(rules, tmp_path, (SERIES, expected)) is None
