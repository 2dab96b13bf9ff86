"""What the API tells the exporter: asked for now and then, sooner for a new container, kept while the API is away."""

from datetime import UTC, datetime

import pytest

from agents.exporter.pod_names import LOOK_UP_SECONDS, REFRESH_SECONDS, Registrar
from agents.kube.client import ApiError
from agents.node.cgroup import Container
from agents.runtime.clock import Clock
from tests.support.fake_cluster import NAMES, SYSTEM, T4, Fault, Served
from tests.unit.agents.node.test_pods import CHAT

KNOWN, NEW = Container("uid-chat", "aaa"), Container("uid-new", "fff")


class EndedError(Exception):
    """The test has seen enough rounds."""


def registrar(served: Served) -> Registrar:
    served.cluster.add_ledger(T4)
    served.cluster.pods.append(CHAT)
    clock = served.time.clock()
    return Registrar(api=served.api(), node="k8s-node1", ledger_namespace=SYSTEM, clock=clock)


def rounds(served: Served, kept: Registrar, seconds: float) -> int:
    """How often the pods were listed in so many seconds."""

    def end() -> None:
        if served.time.seconds >= seconds:
            raise EndedError

    served.time.meanwhile = end
    with pytest.raises(EndedError):
        kept.keep_refreshing(served.log())
    return sum(url.startswith("/api/v1/pods") for _, url in served.cluster.requests)


def test_an_answer_has_the_pods_with_their_budgets_and_the_ledger(served: Served) -> None:
    kept = registrar(served)
    kept.refresh()
    assert [(pod.name, pod.declared_mib) for pod in kept.last.roster.pods] == [("chat-0", 5000)]
    assert kept.last.ledger is not None
    assert kept.last.ledger.names == NAMES


@pytest.mark.parametrize("gone", ["never made", "being deleted"])
def test_without_a_ledger_pods_have_names_and_no_budgets(served: Served, gone: str) -> None:
    kept = registrar(served)
    if gone == "never made":
        del served.cluster.objects[served.cluster.ledger_path]
    else:
        served.cluster.delete_ledger()
    kept.refresh()
    assert (kept.last.ledger, [pod.declared_mib for pod in kept.last.roster.pods]) == (None, [0])


JOURNAL = f"/api/v1/namespaces/{SYSTEM}/configmaps/gpu-vram-watchdog-journal"


@pytest.mark.parametrize(
    ("data", "recycled"),
    [
        ({}, ()),
        (
            {"journal.json": '{"recycled":[{"at":"2026-06-02T12:00:00+00:00","workload":"immich-ml","pods":["u"]}]}'},
            (datetime(2026, 6, 2, 12, tzinfo=UTC),),
        ),
        ({"journal.json": "torn"}, None),
        ({"journal.json": '{"recycled":[{"at":"yesterday"}]}'}, None),
    ],
)
def test_when_the_watchdog_recycled_is_read_from_its_journal(
    served: Served, data: dict[str, str], recycled: tuple[datetime, ...] | None
) -> None:
    kept = registrar(served)
    served.cluster.objects[JOURNAL] = {"metadata": {"resourceVersion": "1"}, "data": data}
    kept.refresh()
    assert kept.last.recycled == recycled
    assert kept.last.ledger is not None


def test_without_a_journal_nothing_is_known_of_recycles(served: Served) -> None:
    kept = registrar(served)
    kept.refresh()
    assert kept.last.recycled is None


def test_an_api_that_is_away_leaves_the_last_answer_which_grows_old(served: Served) -> None:
    kept = registrar(served)
    kept.refresh()
    last = kept.last
    served.cluster.faults.append(Fault("GET", "/api/v1/pods", 403, times=100))
    served.time.seconds = 40.0
    with pytest.raises(ApiError):
        kept.refresh()
    assert (kept.last, kept.age_seconds) == (last, 40.0)


def test_before_the_first_answer_the_age_counts_from_the_start(served: Served) -> None:
    kept = registrar(served)
    served.time.seconds = 7.0
    assert kept.age_seconds == 7.0


def test_a_quiet_node_is_listed_once_a_refresh(served: Served) -> None:
    assert rounds(served, registrar(served), 4 * REFRESH_SECONDS) == 4


def test_a_container_without_a_name_is_asked_for_at_the_next_look_up_and_no_more_often(served: Served) -> None:
    kept = registrar(served)

    def sleep(seconds: float) -> None:
        kept.look_up([KNOWN, NEW])  # as the sampling thread does at every reading
        served.time.sleep(seconds)

    kept.clock = Clock(monotonic=lambda: served.time.seconds, sleep=sleep)
    assert rounds(served, kept, 4 * REFRESH_SECONDS) == 4 * REFRESH_SECONDS / LOOK_UP_SECONDS


def test_known_containers_ask_for_nothing(served: Served) -> None:
    kept = registrar(served)
    kept.refresh()
    kept.look_up([KNOWN])
    assert rounds(served, kept, REFRESH_SECONDS) == 2  # the one above, and the loop's own


def test_a_problem_is_told_once_and_its_end_too(served: Served) -> None:
    kept = registrar(served)
    served.cluster.faults.append(Fault("GET", "/api/v1/pods", 403, "Forbidden", "no right", times=2))
    rounds(served, kept, 3 * REFRESH_SECONDS)
    messages = [line["message"] for line in served.lines()]
    assert messages == [
        "names and budgets stay as they were: GET /api/v1/pods: 403 Forbidden: no right",
        "names and budgets are up to date again",
    ]
