"""Controls tests with random cases. `make unit` tries a few hundred cases, which are always the same. `make soak` tries
many more, and other ones each time.

A failed test prints its seed. GPU_TENANCY_SEED=<seed> repeats the test.
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
QUICK_SEED = 1


def choose_seed() -> None:
    os.environ.setdefault(SEED, str(secrets.randbelow(10**9) if os.environ.get(SOAK) else QUICK_SEED))


def seed() -> int:
    return int(os.environ[SEED])


def dice(name: object) -> Random:
    return Random(f"{seed()} {name}")  # noqa: S311 (no secret)


def cases(quick: int, *, soak: int) -> int:
    return soak if os.environ.get(SOAK) else quick


def examples(quick: int, *, soak: int) -> Callable[[Test], Test]:
    def decorate(test: Test) -> Test:
        settings = hypothesis.settings(
            max_examples=cases(quick, soak=soak),
            derandomize=False,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        return pytest.mark.search(hypothesis.seed(seed())(settings(test)))

    return decorate
