"""What `make test` prints of its levels."""

import pytest

from tests import levels


@pytest.mark.parametrize(
    ("statuses", "status", "lines"),
    [
        (
            {"unit": 0, "integration": 0},
            0,
            ["unit           0 min 42 s", "integration    1 min 30 s", "together       2 min 12 s"],
        ),
        (
            {"unit": 2, "integration": 0},
            2,
            ["unit           0 min 42 s FAILED", "integration  not run", "together       0 min 42 s"],
        ),
    ],
    ids=["all pass", "the first fails"],
)
def test_each_level_is_named_with_its_time_up_to_the_first_that_fails(
    statuses: dict[str, int], status: int, lines: list[str]
) -> None:
    now = 100.0

    def start(level: str) -> int:
        nonlocal now
        now += {"unit": 42, "integration": 90}[level]
        return statuses[level]

    assert levels.run([*statuses], start, lambda: now) == (status, lines)
