"""The sizes of seats as CEL: within what an expression may have, each tenant in one policy."""

import re

from components.admission.grace import grace
from components.admission.seats import Seats, seat_sizes
from tenancy.names import Names

MOST_CODE_POINTS = 100_000  # of an expression: cel-go's ExpressionSizeCodePointLimit, which the API server leaves
NAMES = Names("example.com")


def seats(tenants: int) -> Seats:
    return Seats(names=NAMES, sizes={f"tenant-{number:05}": {3000: 1, 500: 2} for number in range(tenants)})


def test_ten_thousand_tenants_are_in_as_many_policies_as_it_takes() -> None:
    """At some 4,300 the API server refused the one policy that there was."""
    policies = seat_sizes(seats(10_000), ["tenant-00007"])
    spec = [policy["spec"] for policy in policies]
    assert [policy["metadata"]["name"] for policy in policies] == [
        "gpu-tenancy-seat-sizes",
        *(f"gpu-tenancy-seat-sizes-{number}" for number in range(2, len(policies) + 1)),
    ]
    expressions = [each["variables"] + each["validations"] for each in spec]
    texts = [
        part.get(key, "") for group in expressions for part in group for key in ("expression", "messageExpression")
    ]
    assert max(map(len, texts)) <= MOST_CODE_POINTS
    selected = [each["matchConstraints"]["namespaceSelector"]["matchExpressions"][0]["values"] for each in spec]
    assert sorted(name for group in selected for name in group) == sorted({*seats(10_000).sizes} - {"tenant-00007"})
    for group, listed in zip(selected, expressions, strict=True):
        assert set(re.findall(r"tenant-\d+", str(listed))) == set(group)


def test_what_judges_the_unbudgeted_alone_has_no_other_tenants_sizes() -> None:
    policies = grace(seats(10_000), ["tts", "tenant-00003"])
    assert set(re.findall(r"tenant-\d+", str(policies))) == {"tenant-00003"}
