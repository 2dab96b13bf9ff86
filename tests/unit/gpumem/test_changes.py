"""Tests that `kubectl gpumem changes` lists each act of the platform once."""

import json
from contextlib import nullcontext
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest

from agents.gate.ownership import JournalEntry
from agents.watchdog.types import Recycled
from gpumem import cli
from gpumem.changes import Changes, changes, changes_text
from gpumem.paper import Paper
from tenancy import names
from tenancy.ledger import LocalQueue
from tests.support.kubectl import LEDGER_OF_PROD, NOW, SYSTEM, FakeApi, api

DAY = 24 * 3600
EVENTS = "/api/v1/events"
KEPT = (
    "Kubernetes keeps Events for 1 hour by default, so older changes can be missing. The gate's journal has only the "
    "last change of each on-demand workload.\n"
)


def event(about: str, reason: str, note: str = "did it", minutes: float = 5, **fields: Any) -> dict[str, Any]:
    kind, name = about.split("/")
    namespace = fields.get("namespace", "immich")
    involved = {"kind": kind, "name": name, "uid": fields.get("uid", f"uid-{name}")}
    return {
        "metadata": {"namespace": namespace or "default"},
        "involvedObject": involved | ({"namespace": namespace} if namespace else {}),
        "reason": reason,
        "message": note,
        "reportingComponent": fields.get("by", names.WATCHDOG),
        "eventTime": (NOW - timedelta(minutes=minutes)).isoformat(),
    }


def with_events(*events: dict[str, Any], **fields: Any) -> FakeApi:
    found = api(**fields)
    found.lists[EVENTS] = [*events]
    found.lists["/api/v1/namespaces/immich/events"] = [e for e in events if e["metadata"]["namespace"] == "immich"]
    return found


def keep(found: FakeApi, agent: str, content: Any) -> FakeApi:
    name = names.journal(agent)
    text = content if isinstance(content, str) else json.dumps(content, default=str)
    found.objects[f"/api/v1/namespaces/{SYSTEM}/configmaps/{name}"] = {
        "metadata": {"name": name, "resourceVersion": "1"},
        "data": {names.JOURNAL_KEY: text},
    }
    return found


def recycled(workload: str, minutes: float, *pods: str, node: str = "k8s-node1") -> dict[str, Any]:
    at = NOW - timedelta(minutes=minutes)
    return asdict(Recycled(at=at, workload=workload, pods=pods, node=node)) | {"at": at.isoformat()}


def ask(found: FakeApi, namespace: str | None = None, pool: str | None = None, seconds: float = DAY) -> Changes:
    return changes(found, SYSTEM, seconds, namespace=namespace, pool=pool, own=lambda: "immich")


def shown(found: Changes) -> list[tuple[str, str | None, str]]:
    return [(each.what, each.namespace, each.name) for each in found.changes]


def test_the_agents_events_are_listed_with_the_newest_last() -> None:
    found = with_events(
        event("Node/k8s-node1", names.EVENT_ADVERTISED, "14000 MiB", 1, namespace="", by=names.RECONCILE),
        event("Pod/ml", names.EVENT_RECYCLED, minutes=30),
        event("Pod/old", names.EVENT_RECYCLED, minutes=90),
        event("Pod/other", "Scheduled", by="default-scheduler"),
        event("Pod/odd", "Scheduled"),
    )
    assert shown(ask(found, seconds=3600)) == [
        (names.EVENT_RECYCLED, "immich", "ml"),
        (names.EVENT_ADVERTISED, None, "k8s-node1"),
    ]
    assert changes_text(ask(found, seconds=3600), Paper(width=200)) == (
        "TIME                  WHAT                 ABOUT      TEXT\n"
        "2026-11-22T11:30:00Z  GpuMemoryRecycled    immich/ml  did it\n"
        "2026-11-22T11:59:00Z  GpuMemoryAdvertised  k8s-node1  14000 MiB\n"
        f"\n{KEPT}"
    )


def test_a_quiet_platform_has_no_changes() -> None:
    assert (
        changes_text(ask(with_events()), Paper(width=200)) == f"nothing is known since 2026-11-21T12:00:00Z\n\n{KEPT}"
    )


def test_older_acts_come_from_the_journals() -> None:
    found = with_events()
    deleted = {**recycled("immich/Deployment/app", 240, "u2"), "overruled": True}
    content = {"recycled": [recycled("immich/Deployment/ml", 300, "u1"), deleted]}
    keep(found, names.WATCHDOG, content)
    moved = int((NOW - timedelta(hours=2)).timestamp())
    opened = JournalEntry(uid="uid-tts", generation=2, replicas=1, changed_at=moved)
    keep(found, names.GATE, {"tts": asdict(opened), "new": asdict(replace(opened, changed_at=None))})
    answer = ask(found)
    assert shown(answer) == [
        (names.EVENT_RECYCLED, "immich", "ml"),
        (names.EVENT_RECYCLED, "immich", "app"),
        ("Scaled", "tts", "tts"),
    ]
    assert [each.text for each in answer.changes] == [
        "recycled on k8s-node1",
        "recycled on k8s-node1, although a PodDisruptionBudget refused its eviction",
        "has 1 replicas since then, by the gate or by others",
    ]
    assert [each.kind for each in answer.changes] == ["deployment", "deployment", "on-demand workload"]
    assert {each.source for each in answer.changes} == {"gpu-vram-watchdog-journal", "gpu-demand-gate-journal"}
    assert answer.recycles_since == "2026-11-22T07:00:00Z"
    assert "The watchdog's journal has all recycles since 2026-11-22T07:00:00Z." in changes_text(answer, Paper(200))
    assert answer.unknown == ()


def test_an_act_with_an_event_and_an_entry_is_listed_once() -> None:
    found = with_events(
        event("Pod/ml", names.EVENT_RECYCLED, uid="u1", minutes=10),
        event("Deployment/tts", names.EVENT_GATE_CLOSED, uid="uid-tts", minutes=20, namespace="tts", by=names.GATE),
    )
    entries = [recycled("immich/Deployment/ml", 10, "u1"), recycled("immich/Deployment/b", 10, "u2")]
    keep(found, names.WATCHDOG, {"recycled": [*entries, recycled("immich/Deployment/ml", 40, "u1")]})
    moved = int((NOW - timedelta(minutes=20)).timestamp())
    closed = JournalEntry(uid="uid-tts", generation=2, replicas=0, changed_at=moved)
    keep(found, names.GATE, {"tts": asdict(closed)})
    assert sorted((each.name, each.source) for each in ask(found).changes) == [
        ("b", "gpu-vram-watchdog-journal"),
        ("ml", "event"),
        ("ml", "gpu-vram-watchdog-journal"),
        ("tts", "event"),
    ]


@pytest.mark.parametrize(
    ("agent", "content"),
    [
        (names.WATCHDOG, "no JSON"),
        (names.WATCHDOG, {"recycled": [{"at": "yesterday"}]}),
        (names.GATE, {"tts": {"uid": "u", "replicas": 1, "changed_at": 10**30}}),
        (names.GATE, {"tts": []}),
    ],
)
def test_an_unreadable_journal_is_a_line_and_the_rest_is_shown(agent: str, content: Any) -> None:
    found = ask(keep(with_events(event("Pod/ml", names.EVENT_RECYCLED)), agent, content))
    assert len(found.changes) == 1
    assert [line for line in found.unknown if line.startswith(f"the journal {names.journal(agent)}: ")]


def test_only_the_wanted_namespace_and_pool_are_shown() -> None:
    queues = (LocalQueue(name="gpu", tenant="team-a", queue="gpu-cq"),)
    found = with_events(
        event("Pod/ml", names.EVENT_RECYCLED),
        event("Pod/train", names.EVENT_UNDECLARED, namespace="team-a"),
        event("Node/k8s-node1", names.EVENT_SHORT, namespace="", by=names.RECONCILE),
        event("Node/k8s-node2", names.EVENT_SHORT, namespace="", by=names.RECONCILE),
        ledger=replace(LEDGER_OF_PROD, local_queues=queues),
    )
    keep(found, names.WATCHDOG, {"recycled": [recycled("team-a/Job/x", 100, "u1")]})
    assert [each.name for each in ask(found, namespace="immich").changes] == ["ml"]
    assert sorted(each.name for each in ask(found, pool="t4").changes) == ["k8s-node1", "ml", "x"]
    assert sorted(each.name for each in ask(found, pool="batch").changes) == ["k8s-node2", "train"]


def test_a_tenants_note_is_bounded_and_cannot_control_the_terminal() -> None:
    found = ask(with_events(event("Pod/ml", names.EVENT_SPARED, "a\nb\x1b[2J" + "x" * 5000)))
    assert len(found.changes[0].text) == 300
    (line,) = (line for line in changes_text(found, Paper()).splitlines() if "immich/ml" in line)
    assert "a b\\x1b[2Jxxx" in line
    assert line.endswith("x…")


def test_a_member_of_a_tenant_sees_the_own_events() -> None:
    found = with_events(event("Pod/ml", names.EVENT_RECYCLED), event("Pod/t", names.EVENT_SPARED, namespace="tts"))
    journal = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.journal(names.WATCHDOG)}"
    found.refused |= {EVENTS, journal}
    answer = ask(found)
    assert [each.name for each in answer.changes] == ["ml"]
    assert sorted(line.partition(": ")[0] for line in answer.unknown) == [
        "the Events of other namespaces than immich",
        "the journal gpu-vram-watchdog-journal",
    ]


class Reached(nullcontext[Any], FakeApi):
    def namespace(self) -> str:
        return "immich"


def typed(words: str, found: FakeApi) -> int:
    answer = Reached()
    answer.__dict__.update(vars(found))
    answer.enter_result = answer
    return cli.main(words.split(), {}, lambda _: answer)


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = with_events(event("Pod/ml", names.EVENT_RECYCLED, minutes=100), event("Pod/b", names.EVENT_SPARED))
    assert typed("changes --since 2h -o json", found) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["kind"], printed["since"], printed["recycles_since"]) == ("changes", "2026-11-22T10:00:00Z", None)
    assert printed["changes"][0] == {
        "at": "2026-11-22T10:20:00Z",
        "what": "GpuMemoryRecycled",
        "kind": "pod",
        "namespace": "immich",
        "name": "ml",
        "text": "did it",
        "source": "event",
    }
    assert typed("changes --since 1h", found) == 0
    assert "immich/ml" not in capsys.readouterr().out
