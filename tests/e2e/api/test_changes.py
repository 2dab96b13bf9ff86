"""Tests `kubectl gpumem changes` on a real API server, with only the rights of an operator."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from components.base.identity import RoleRef, binding_manifest
from components.readers import operator_role
from tenancy import names
from tests.support.e2e import plugin
from tests.support.e2e.access import await_right
from tests.support.e2e.server import NAMESPACES, ApiServer
from tests.support.kubectl import LEDGER_OF_PROD, SYSTEM

OPERATOR = "an-operator"


def event(name: str, reason: str, by: str, at: datetime) -> dict[str, Any]:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "immich"},
        "eventTime": f"{at:%Y-%m-%dT%H:%M:%S.%fZ}",
        "type": "Warning",
        "reason": reason,
        "action": "Evict",
        "note": f"the note of {name}",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "immich", "name": "ml", "uid": "u1"},
        "reportingController": by,
        "reportingInstance": "one",
    }


def test_an_operator_sees_the_agents_events_and_the_journals(server: ApiServer) -> None:
    for namespace in (SYSTEM, "immich"):
        server.create(NAMESPACES, {"metadata": {"name": namespace}})
    now = datetime.now(UTC)
    act = {"at": (now - timedelta(days=3)).isoformat(), "workload": "immich/Deployment/ml", "pods": []}
    stored = {
        names.LEDGER: {names.LEDGER_KEY: json.dumps(LEDGER_OF_PROD.to_data())},
        names.journal(names.WATCHDOG): {names.JOURNAL_KEY: json.dumps({"recycled": [act]})},
    }
    for name, data in stored.items():
        server.create(f"{NAMESPACES}/{SYSTEM}/configmaps", {"metadata": {"name": name}, "data": data})
    events = "/apis/events.k8s.io/v1/namespaces/immich/events"
    server.create(events, event("ours", names.EVENT_RECYCLED, names.WATCHDOG, now))
    server.create(events, event("other", names.EVENT_RECYCLED, "somebody", now))
    role = operator_role()
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": OPERATOR}
    server.apply(role, "clusterroles")
    server.apply(binding_manifest("operator", {}, RoleRef(names.OPERATOR), [subject]), "clusterrolebindings")
    await_right(server.api, OPERATOR, "list", "pods")

    found = plugin.shown(server.kubeconfig, "changes", "--since", "99999h", "--pool", "t4", "--as", OPERATOR)
    assert [(each["source"], each["name"], each["text"]) for each in found["changes"]] == [
        ("gpu-vram-watchdog-journal", "ml", "recycled"),
        ("event", "ml", "the note of ours"),
    ]
    assert found["unknown"] == []
