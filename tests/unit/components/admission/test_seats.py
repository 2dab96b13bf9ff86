"""Tests that the CEL expressions for seat sizes are not too long for the API server."""

import re
from collections.abc import Iterable

import pytest

from components.admission.grace import grace
from components.admission.queued import QueueTenants, queue_policies
from components.admission.seats import TenantSeatSizes, seat_labels, seat_sizes
from components.base.manifest import Manifest
from tenancy.frameworks import FRAMEWORKS, FrameworkName
from tenancy.ledger import Seat
from tenancy.names import EXEMPT_BY_NAME, LABEL_NAMESPACE, Names
from tenancy.policy_names import (
    GRACE,
    QUEUED_PODS,
    SEAT_LABELS,
    SEAT_SIZES,
)
from tenancy.seat_sizes import SeatSizes

# Source: ExpressionSizeCodePointLimit of cel-go.
MOST_CODE_POINTS = 100_000
NAMES = Names("example.com")


def seats(tenants: int) -> TenantSeatSizes:
    sizes = SeatSizes(spreads={3000: 1, 500: 2, 9000: 0}, several={9000: (2, 4)})
    return TenantSeatSizes(names=NAMES, sizes={f"tenant-{number:05}": sizes for number in range(tenants)})


def of(policies: Iterable[Manifest], name: str) -> list[Manifest]:
    return [policy for policy in policies if re.fullmatch(rf"{name}(-\d+)?", policy["metadata"]["name"])]


EVERYBODY = list(seats(10_000).sizes)
TENANTS = [*EVERYBODY, "without-a-seat"]
JOBS = [FRAMEWORKS[FrameworkName.JOB]]
QUEUED = queue_policies(QueueTenants(seats=seats(10_000), tenants=TENANTS, account="kueue", frameworks=JOBS))


@pytest.mark.parametrize(
    ("name", "policies"),
    [
        (SEAT_SIZES, seat_sizes(seats(10_000), [])),
        (QUEUED_PODS, QUEUED),
        (GRACE, grace(seats(10_000), EVERYBODY)),
    ],
)
def test_ten_thousand_tenants_are_in_as_many_policies_as_it_takes(name: str, policies: list[Manifest]) -> None:
    policies = of(policies, name)
    spec = [policy["spec"] for policy in policies]
    assert [policy["metadata"]["name"] for policy in policies] == [
        name,
        *(f"{name}-{number}" for number in range(2, len(policies) + 1)),
    ]
    expressions = [each["variables"] + each["validations"] for each in spec]
    texts = [
        part.get(key, "") for group in expressions for part in group for key in ("expression", "messageExpression")
    ]
    assert max(map(len, texts)) <= MOST_CODE_POINTS
    selected = [each["matchConstraints"]["namespaceSelector"]["matchExpressions"][0]["values"] for each in spec]
    assert sorted({*EVERYBODY}) == sorted(name for group in selected for name in group if name != "without-a-seat")
    for group, listed in zip(selected, expressions, strict=True):
        assert set(re.findall(r"tenant-\d+", str(listed))) == {*group} - {"without-a-seat"}


def test_each_label_is_judged_by_one_policy_however_many_tenants_there_are() -> None:
    few = seat_labels(NAMES, {})
    assert [policy["metadata"]["name"] for policy in few] == [SEAT_LABELS]
    named = {name: [Seat(name=f"llm-of-{name}", tenant=name, pool="t4", gpumem_mib=3000)] for name in EVERYBODY}
    policies = [policy["spec"] for policy in seat_labels(NAMES, named)]
    literals = [each["variables"][-1]["expression"] for each in policies]
    assert max(map(len, literals)) <= MOST_CODE_POINTS
    tenants = [re.findall(r"llm-of-(tenant-\d+)", literal) for literal in literals]
    assert sorted(name for some in tenants for name in some) == EVERYBODY
    first, *others = [each["matchConstraints"]["namespaceSelector"]["matchExpressions"] for each in policies]
    assert others
    assert first[0] == {
        "key": LABEL_NAMESPACE,
        "operator": "NotIn",
        "values": sorted([EXEMPT_BY_NAME, *(name for some in tenants[1:] for name in some)]),
    }
    assert [each[0]["values"] for each in others] == tenants[1:]


def test_who_queues_is_not_judged_by_seats_alone() -> None:
    assert "tenant-00007" not in str(seat_sizes(seats(10), ["tenant-00007"]))


def test_what_judges_the_unbudgeted_alone_has_no_other_tenants_sizes() -> None:
    policies = grace(seats(10_000), ["tts", "tenant-00003"])
    assert set(re.findall(r"tenant-\d+", str(policies))) == {"tenant-00003"}
