"""Controls tests with random cases.

`make unit` tries a few hundred cases of a new seed, and `make soak` tries many more cases. The report of a failed test
contains the seed. GPU_TENANCY_SEED=<seed> repeats the run.
"""

import os
import secrets
from collections.abc import Callable
from random import Random
from typing import TypeVar

import hypothesis
import pytest

Test = TypeVar("Test", bound=Callable[..., object])

SEED = "GPU_TENANCY_SEED"
SOAK = "GPU_TENANCY_SOAK"


def choose_seed() -> None:
    """Chooses a seed for this process and its child processes, unless the environment sets one."""
    os.environ.setdefault(SEED, str(secrets.randbelow(10**9)))


def seed() -> int:
    return int(os.environ[SEED])


def dice(name: object) -> Random:
    """Returns a generator of random numbers that depends only on the seed and the name."""
    return Random(f"{seed()} {name}")  # noqa: S311 (no secret)


def cases(quick: int, *, soak: int) -> int:
    """Returns the number of cases that a test tries, which is larger in `make soak`."""
    return soak if os.environ.get(SOAK) else quick


def examples(quick: int, *, soak: int) -> Callable[[Test], Test]:
    """Decorates a test with @given: the test runs this number of examples, and none that an earlier run has saved."""

    def decorate(test: Test) -> Test:
        settings = hypothesis.settings(
            max_examples=cases(quick, soak=soak),
            derandomize=False,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        return pytest.mark.search(hypothesis.seed(seed())(settings(test)))

    return decorate
