"""The gate with prod rolled out behind it: what the pack judges then comes back from the API server, with its defaults,
its spelling of quantities and its refusals."""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.e2e.rollout import Change, Rollout, unchanged
from tests.integration.preview.mistakes import (
    GROUPS,
    assert_refused,
    make_group,
    set_at,
)
from toolchain.workspace import Outcome

LARGEST = sorted(GROUPS, key=len)[-2:]


@pytest.fixture(scope="module")
def outcomes(prod: Rollout, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome]:
    """The previews of prod with most of the gate's mistakes, a right change, none. The others, and what the settings
    refuse before a cluster is asked, are previewed without one (tests/integration/preview/test_prod.py).

    A preview waits for the cluster as long as it computes, so two go on at a time, each on its own state.
    """
    changes: dict[str, Change] = {group[0]: partial(make_group, group=group) for group in LARGEST}
    changes |= {
        "a lower priority": set_at("priorities/tier-2-gpu/value", 500000),
        "nothing": unchanged,
    }

    def preview(name: str) -> Outcome:
        space = prod.workspace.copy(tmp_path_factory.mktemp("preview"))
        space.change(changes[name])
        return space.preview(KUBECONFIG=str(prod.cluster.kubeconfig))

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return dict(zip(changes, threads.map(preview, changes), strict=True))


@pytest.mark.parametrize("group", LARGEST, ids=lambda group: group[0])
def test_the_gate_refuses_mistakes_as_it_does_without_a_cluster(
    outcomes: Mapping[str, Outcome], group: tuple[str, ...]
) -> None:
    assert_refused(outcomes[group[0]], group)


def test_what_is_rolled_out_passes_and_has_nothing_to_change(outcomes: Mapping[str, Outcome]) -> None:
    outcome = outcomes["nothing"]
    assert outcome.code == 0, outcome.text
    assert "✅ gpu-tenancy" in outcome.text
    assert " changes. " not in outcome.text


def test_a_changed_priority_is_a_replacement_that_the_api_server_does_not_hinder(
    outcomes: Mapping[str, Outcome],
) -> None:
    """Its own dry run would apply the new value to the class that is there, which is immutable."""
    outcome = outcomes["a lower priority"]
    assert outcome.code == 0, outcome.text
    assert "+-1 to replace" in outcome.text
