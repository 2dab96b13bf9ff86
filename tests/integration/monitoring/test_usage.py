"""Tests the recording rules of seats and use, with Prometheus' rule tests and with `kubectl gpumem bill`."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from components.monitoring.component import prometheus_rule
from components.monitoring.usage import INTERVAL_SECONDS
from gpumem.bill import SAMPLES_AN_HOUR, bill
from tenancy.names import RECORDED_SEATS, RECORDED_USED
from tests.support.alerting import Expected, contradiction
from tests.support.healthy import ARGS, MIB, named
from tests.support.kubectl import LEDGER_OF_PROD
from tests.support.remembering import prometheus


def seat(node: str, pool: str, tenant: str, name: str, mib: int) -> dict[str, str]:
    return {named("gpu_seat_memory_bytes", node=node, pool=pool, tenant=tenant, seat=name): f"{mib * MIB}x10"}


def use(node: str, tenant: str, pod: str, container: str, mib: int, *, values: str = "") -> dict[str, str]:
    labels = {"node": node, "uuid": f"GPU-{node}", "namespace": tenant, "pod": pod, "pod_uid": pod}
    return {named("gpu_pod_memory_used_bytes", **labels, container=container): values or f"{mib * MIB}x10"}


def floor(node: str, pool: str, mib: int) -> dict[str, str]:
    return {named("gpu_pool_memory_floor_bytes", node=node, pool=pool): f"{mib * MIB}x10"}


# The pool t4 has two nodes, and the exporters of both nodes serve the seats. A second pool has one node and no floor.
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
    **use("a", "", "", "", 77),  # the use of an unknown pod
}
RECORDED = {
    RECORDED_SEATS: {("immich", "t4"): 4800, ("chat", "l4"): 9000},
    RECORDED_USED: {("immich", "t4"): 3300, ("tts", "t4"): 2048, ("immich", "l4"): 50},
}


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
    assert contradiction(rules, SERIES, expected, tmp_path, scrapes="1m", evaluation="1m") is None


THIS = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
MONTH = (THIS - timedelta(days=1)).replace(day=1)
MEASURED_HOURS = 6  # the hours with samples, on the month's second day; the last hour has samples for 30 minutes


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Runs a Prometheus with the recorded samples, and yields its URL.

    The sample at a full hour is both the end of one hour and the start of the next hour.
    """
    first = int((MONTH + timedelta(days=1)).timestamp())
    moments = range(first, first + MEASURED_HOURS * 3600 - 1800, INTERVAL_SECONDS)
    lines = []
    for name, mib in ((RECORDED_SEATS, 5000), (RECORDED_USED, 6000)):
        lines.append(f"# TYPE {name} gauge")
        lines += [f'{name}{{tenant="llama-swap",pool="t4"}} {mib * MIB} {moment}' for moment in moments]
    with prometheus(tmp_path_factory.mktemp("prometheus"), lines) as found:
        yield found


def test_a_bill_adds_up_what_was_recorded_and_says_how_much_was_not(address: str) -> None:
    assert SAMPLES_AN_HOUR * INTERVAL_SECONDS == 3600
    found = bill(address, LEDGER_OF_PROD, month=f"{MONTH:%Y-%m}", currency=None, now=datetime.now(UTC))
    hours = MEASURED_HOURS - 0.5
    assert sum(charge.seat_mib_hours for charge in found.charges) == pytest.approx(5000 * hours)
    assert sum(charge.used_mib_hours for charge in found.charges) == pytest.approx(6000 * hours)
    assert found.measured * (THIS - MONTH).total_seconds() / 3600 == pytest.approx(hours)
    assert found.unknown[0].startswith("what was used in 99.")
