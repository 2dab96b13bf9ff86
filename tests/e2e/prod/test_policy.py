"""Runs the policy pack on the objects of prod after the rollout."""

from pathlib import Path

from tests.support.e2e.rollout import Rollout
from tests.support.examples import assert_refused, with_mistakes


def test_the_pack_refuses_mistakes_as_it_does_without_a_cluster(prod: Rollout, tmp_path: Path) -> None:
    space = prod.workspace.copy(tmp_path)
    space.change(with_mistakes)
    assert_refused(space.preview(KUBECONFIG=str(prod.cluster.kubeconfig)))
