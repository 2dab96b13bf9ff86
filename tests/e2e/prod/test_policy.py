"""Runs the policy pack on prod after its rollout, when the API server has set defaults in all objects."""

from pathlib import Path

from tests.support.e2e.rollout import Rollout
from tests.support.examples import assert_refused, with_mistakes


def test_the_pack_refuses_mistakes_as_it_does_without_a_cluster(prod: Rollout, tmp_path: Path) -> None:
    space = prod.workspace.copy(tmp_path)
    space.change(with_mistakes)
    assert_refused(space.preview(KUBECONFIG=str(prod.cluster.kubeconfig)))
