"""The gate with prod rolled out behind it: what the pack judges then comes back from the API server, with its defaults,
its spelling of quantities and its refusals."""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.rollout import Rollout
from tests.preview.cli import Outcome
from tests.preview.mistakes import ALL_REFUSED, GATED, Config, make_all_refused, set_at


def unchanged(_: Config) -> None:
    """No mistake."""


@pytest.fixture(scope="module")
def outcomes(prod: Rollout, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome]:
    """The previews of prod with each mistake of the gate's, all of the settings' at once, a right change, and none.

    A preview waits for the cluster as long as it computes, so they go on side by side, each on a state of its own.
    """
    changes = {name: mistake.make for name, mistake in GATED.items()}
    changes |= {
        "all that the settings refuse": make_all_refused,
        "a lower priority": set_at("priorities/tier-2-gpu/value", 500000),
        "nothing": unchanged,
    }

    def preview(name: str) -> Outcome:
        space = prod.workspace.copy(tmp_path_factory.mktemp("preview"))
        space.change(changes[name])
        return space.preview(KUBECONFIG=str(prod.cluster.kubeconfig))

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return dict(zip(changes, threads.map(preview, changes), strict=True))


@pytest.mark.parametrize("name", GATED)
def test_the_gate_refuses_a_single_mistake_as_it_does_without_a_cluster(
    outcomes: Mapping[str, Outcome], name: str
) -> None:
    outcome = outcomes[name]
    assert outcome.code != 0
    assert GATED[name].message in outcome.text
    assert "[mandatory]" in outcome.text
    assert "Traceback" not in outcome.text


def test_the_settings_refuse_their_mistakes_all_at_once(outcomes: Mapping[str, Outcome]) -> None:
    outcome = outcomes["all that the settings refuse"]
    assert outcome.code != 0
    assert [message for message in ALL_REFUSED if message not in outcome.text] == []


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
