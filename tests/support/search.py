"""Controls tests with random cases, those of hypothesis among them. `make unit` tries a few of them, which are always
the same. `make soak` tries many more, and other ones each time. A seed that fails becomes a test with a name.
"""

import os
import secrets
from collections.abc import Callable
from random import Random
from typing import TypeVar

import hypothesis
import hypothesis.core
from hypothesis.internal.conjecture import providers

Test = TypeVar("Test", bound=Callable[..., object])

SEED = "GPU_TENANCY_SEED"
SOAK = "GPU_TENANCY_SOAK"
QUICK_SEED = 1


def prepare() -> None:
    os.environ.setdefault(SEED, str(secrets.randbelow(10**9) if os.environ.get(SOAK) else QUICK_SEED))
    hypothesis.core.global_force_seed = seed()
    # By default the examples also hold numbers and texts from all source files of ours that the process has imported
    # so far. They would depend on the tests that ran before, and on every change of our code.
    providers.is_local_module_file = lambda _: False
    hypothesis.settings.register_profile(
        "ours",
        max_examples=cases(50, soak=5000),
        database=None,
        deadline=None,  # A busy machine is slow.
        derandomize=False,  # In CI, the default profile would try other examples than at home.
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile("ours")


def seed() -> int:
    return int(os.environ[SEED])


def how_to_repeat() -> str:
    soak = f"{SOAK}=1 " if os.environ.get(SOAK) else ""
    return f"{soak}{SEED}={seed()} repeats it"


def dice(name: object) -> Random:
    return Random(f"{seed()} {name}")  # noqa: S311 (no secret)


def cases(quick: int, *, soak: int) -> int:
    return soak if os.environ.get(SOAK) else quick


def examples(quick: int, *, soak: int) -> Callable[[Test], Test]:
    return hypothesis.settings(max_examples=cases(quick, soak=soak))
