"""Searches at random: a few hundred cases of a fresh seed in `make unit`, all of them in `make soak`.

The seed is in the report of each search that fails. GPU_TENANCY_SEED=<seed> repeats the run.
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
    """Chooses the seed for this run and for the processes that it starts, unless a seed is given."""
    os.environ.setdefault(SEED, str(secrets.randbelow(10**9)))


def seed() -> int:
    return int(os.environ[SEED])


def dice(name: object) -> Random:
    """Returns the same random numbers for the same seed and name."""
    return Random(f"{seed()} {name}")  # noqa: S311 (no secret)


def cases(quick: int, *, soak: int) -> int:
    """Returns the number of cases that a search tries now."""
    return soak if os.environ.get(SOAK) else quick


def examples(quick: int, *, soak: int) -> Callable[[Test], Test]:
    """Decorates a test above @given: it runs so many examples of this run's seed, and none of an earlier run."""

    def decorate(test: Test) -> Test:
        settings = hypothesis.settings(
            max_examples=cases(quick, soak=soak),
            derandomize=False,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        return pytest.mark.search(hypothesis.seed(seed())(settings(test)))

    return decorate
