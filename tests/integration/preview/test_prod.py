"""Tests that Pulumi's engine and the policy pack refuse prod with mistakes."""

from dataclasses import replace

from tests.support.examples import assert_refused, with_mistakes
from tests.support.workspace import Workspace


def test_the_engine_refuses_mistakes_by_the_rules_that_name_them(space: Workspace) -> None:
    """Without a connection to a cluster, Pulumi's provider treats every kind as namespaced."""
    space.change(with_mistakes)
    outcome = space.preview(KUBECONFIG=str(space.unreachable()))
    assert_refused(replace(outcome, text=outcome.text.replace(" default/", " ")))
