"""Tests that our code computes the program's objects from the settings, without a preview."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from stacks import platform, settings
from stacks.existing.declared import declared
from stacks.existing.objects import Identity, identity
from tenancy.names import EXEMPT_BY_NAME, SEATS
from tests.support.engine import inputs
from tests.support.prod import Raw, drop, put, raw

KINDS = ("Namespace", "PriorityClass", "ClusterQueue", "LocalQueue")


def is_named(manifest: Mapping[str, Any]) -> bool:
    if manifest["metadata"]["name"] == EXEMPT_BY_NAME:
        return False  # Its patch has no label.
    return manifest["kind"] in KINDS or (manifest["kind"] == "ResourceQuota" and manifest["metadata"]["name"] == SEATS)


def by_identity(manifests: Iterable[Mapping[str, Any]]) -> dict[Identity, dict[str, str]]:
    return {identity(each): dict(each["metadata"].get("labels") or {}) for each in manifests if is_named(each)}


def config(**existing: bool) -> Raw:
    found = raw()
    if existing:
        put("priorities gpu-workload create", False)(found)
    return found


def without_admission() -> Raw:
    found = config()
    for part in ("admission", "scheduler", "memory_pools", "queues", "kueue"):
        drop(part)(found)
    return found


def observing() -> Raw:
    found = config(existing=True)
    found["mode"] = "observe"
    return found


def without_agents_on_nodes() -> Raw:
    found = without_admission()
    for part in ("exporter", "watchdog", "gate", "on_demand", "alerts"):
        drop(part)(found)
    return found


@pytest.mark.parametrize(
    "given",
    [config(), config(existing=True), without_admission(), without_agents_on_nodes(), observing()],
    ids=["own", "others", "no admission", "no agents on nodes", "observing"],
)
def test_each_namespace_class_quota_and_queue_is_declared_with_its_labels(given: Raw) -> None:
    found = settings.parse(given)
    objects = [each for _, _, each in inputs(lambda: platform.build(found)) if "kind" in each]
    assert by_identity(each.manifest for each in declared(found, "prod")) == by_identity(objects)
