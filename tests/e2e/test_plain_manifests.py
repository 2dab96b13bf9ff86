"""Applies the manifests of `make render` to a new cluster, with the commands of the documentation.

tests/integration/preview/test_render.py compares the manifests with the objects that the program declares.
"""

import re
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT
from tests.support.waiting import eventually
from tests.support.workspace import workspace
from toolchain.cluster import cluster
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.extent import Extent

PAGE = ROOT / "docs" / "howto" / "use-flux-or-argo.md"
BY_KUBECTL = re.compile(r"## kubectl\n\n```sh\n(.*?)```", re.DOTALL)


@pytest.fixture
def new_cluster(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeldCluster]:
    with cluster.running(tmp_path_factory.mktemp("kubectl"), extent=Extent.SIMULATED) as running:
        yield running


def test_the_documented_commands_apply_each_rendered_object(
    new_cluster: HeldCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    space, access = workspace(tmp_path_factory.mktemp("rendered")), {"KUBECONFIG": str(new_cluster.kubeconfig)}
    python = str(ROOT / ".venv" / "bin" / "python")
    rendered = space.run(python, "-m", "stacks", "render", "--stack", "prod", "--out", "manifests", cwd=space.project)
    assert rendered.code == 0, rendered.text
    (commands,) = BY_KUBECTL.findall(PAGE.read_text())
    answers: list[str] = []

    def succeeds() -> bool:
        outcome = space.run("bash", "-c", commands, cwd=space.project, **access)
        answers.append(outcome.text)
        return outcome.code == 0

    # The page says to repeat the commands until they succeed, because Kueue's webhooks need some time to start.
    eventually(succeeds, "kubectl applies all folders", lambda: answers[-1][-4000:], pause_seconds=5)
