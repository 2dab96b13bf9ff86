"""Provides the clusters of the e2e tests. All tests of a lane share one cluster.

If a part of the cluster cannot start, pytest skips the tests that need this part, and prints the reason.
"""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support.e2e import state
from tests.support.e2e.rollout import Rollout
from tests.support.paths import ROOT
from tests.support.waiting import becomes
from tests.support.workspace import workspace
from toolchain.cluster import cluster, node, paths
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.extent import Extent
from toolchain.cluster.prod import OPERATOR_NAMESPACE

# The lanes run in parallel, each on its own cluster. All lanes take about the same time. In some lanes, modules with
# clusters of their own come first.
LANES = {
    "life": (
        "prod/test_interrupted_up",
        "prod/test_rollout",
    ),
    "queues": ("queues", "test_no_agent"),
    "start": ("api", ""),
    "use": (
        "test_installed_kueue",
        "prod",
        "faults/test_node",
        "faults/test_control_plane",
        "prod/test_withdrawn_capacity",
    ),
    "placing": ("test_day_on_an_existing_cluster", "prod/test_placement", "prod/test_interrupted_destroy"),
    "faults": (
        "prod/test_upgrade",
        "prod/test_watchdog",
        "faults/test_wrong_acts",
        "faults",
    ),
}
ORDER = [part for lane in LANES.values() for part in lane]
HERE = Path(__file__).parent
CLUSTER = pytest.StashKey[HeldCluster]()
OWN = {"default", "kube-node-lease", "kube-public", "kube-system", OPERATOR_NAMESPACE}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    own = [item for item in items if item.path.is_relative_to(HERE)]
    ordered = iter(sorted(own, key=lambda item: ORDER.index(_part(item.path))))
    items[:] = [next(ordered) if item.path.is_relative_to(HERE) else item for item in items]


def _part(path: Path) -> str:
    name = str(path.relative_to(HERE))
    return max((part for part in ORDER if name.startswith(part)), key=len)


class Lanes(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        part = _part(ROOT / nodeid.partition("::")[0])
        return next(lane for lane, parts in LANES.items() if part in parts)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Lanes:
    return Lanes(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    running = item.config.stash.get(CLUSTER, None)
    if report.failed and running is not None:
        report.sections.append(("the cluster", state.told(running.api)))
    return report


@pytest.fixture(scope="session")
def installed() -> None:
    if lacking := paths.missing(paths.CONTROL_PLANE):
        pytest.skip(f"{', '.join(lacking)} not installed: make cluster-toolchain")


@pytest.fixture(scope="session")
def real_cluster(
    installed: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeldCluster]:
    if reason := node.why_not():
        pytest.skip(reason)
    with cluster.running(tmp_path_factory.mktemp("cluster"), extent=Extent.REAL_NODE) as running:
        request.config.stash[CLUSTER] = running
        yield running
        del request.config.stash[CLUSTER]


@pytest.fixture(scope="session")
def stack(real_cluster: HeldCluster, tmp_path_factory: pytest.TempPathFactory) -> Rollout:
    def of_others() -> set[str]:
        found = (real_cluster.api.get("/api/v1/namespaces") or {})["items"]
        return {each["metadata"]["name"] for each in found} - OWN

    becomes(of_others, set(), "the namespaces of other tests are gone")
    rollout = Rollout(real_cluster, workspace(tmp_path_factory.mktemp("prod")))
    rollout.init()
    return rollout


@pytest.fixture(scope="module")
def prod(stack: Rollout) -> Rollout:
    stack.settle()
    return stack
