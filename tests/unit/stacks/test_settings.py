"""What the settings accept and what they refuse, in the words that the operator reads."""

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulumi_kubernetes import ProviderArgs

from policy.rules import RULES
from stacks import settings
from tenancy.ledger import Sharing
from tests.support import search
from tests.support.prod import PROD, Change, drop, put, raw, refusal

LABEL = "lower-case letters, digits and '-' between them, at most 63 characters"
LABEL_KEY = "a label key such as example.com/gpu: a name of at most 63 characters, a DNS name before it"
LABEL_VALUE = "at most 63 letters, digits, '-', '_' and '.', the first and last a letter or digit"

REFUSALS: dict[str, tuple[Change, str]] = {
    # Unknown keys.
    "a misspelt part": (
        put("resident", {"x": {}}),
        "resident: unknown key; did you mean residents?",
    ),
    "a budget without its unit": (
        put("residents frigate gpumem", 2000),
        "residents.frigate.gpumem: unknown key; did you mean gpumem_mib?",
    ),
    "a budget in another unit": (
        put("residents frigate gpumem_gib", 2),
        "residents.frigate.gpumem_gib: unknown key; did you mean gpumem_mib?",
    ),
    "a misspelt key in a list": (
        put("queues flavors gpu-any tolerations", [{"key": "nvidia.com/gpu", "efect": "NoSchedule"}]),
        "queues.flavors.gpu-any.tolerations.0.efect: unknown key; did you mean effect?",
    ),
    "an unknown key like no other": (
        put("reconcile frobnicate", 1),
        "reconcile.frobnicate: unknown key; known here: interval_seconds",
    ),
    # Numbers and units.
    "a budget of nothing": (
        put("residents frigate gpumem_mib", 0),
        "residents.frigate.gpumem_mib: must be at least 1 (got 0)",
    ),
    "a negative budget": (
        put("residents frigate gpumem_mib", -5),
        "residents.frigate.gpumem_mib: must be at least 1 (got -5)",
    ),
    "a fractional budget": (
        put("residents frigate gpumem_mib", 30.5),
        "residents.frigate.gpumem_mib: must be a whole number (got 30.5)",
    ),
    "a budget with a point": (
        put("residents frigate gpumem_mib", 3000.0),
        "residents.frigate.gpumem_mib: must be a whole number; write 3000 (got 3000.0)",
    ),
    "a price with its currency": (
        put("pools t4 price_per_gib_hour", "0.02 EUR"),
        "pools.t4.price_per_gib_hour: must be a number such as 0.02, without quotes or a currency (got '0.02 EUR')",
    ),
    "a price without end": (
        put("pools t4 price_per_gib_hour", float("inf")),
        "pools.t4.price_per_gib_hour: must be a number such as 0.02 (got inf)",
    ),
    "a price that gives": (
        put("pools t4 price_per_gib_hour", -0.1),
        "pools.t4.price_per_gib_hour: must be at least 0.0 (got -0.1)",
    ),
    "a price of whole devices": (
        put("pools batch price_per_gib_hour", 0.1),
        "pools.batch.price_per_gib_hour: has no use where sharing is whole, whose use nobody measures; remove it",
    ),
    "a budget in quotes": (
        put("residents frigate gpumem_mib", "3000"),
        "residents.frigate.gpumem_mib: must be a whole number without quotes; write 3000 (got '3000')",
    ),
    "a budget in Gi": (
        put("residents frigate gpumem_mib", "3Gi"),
        "residents.frigate.gpumem_mib: must be a whole number of MiB without a unit; write 3072 (got '3Gi')",
    ),
    "a budget in Mi": (
        put("residents frigate gpumem_mib", "3000Mi"),
        "residents.frigate.gpumem_mib: must be a whole number of MiB without a unit; write 3000 (got '3000Mi')",
    ),
    "a budget in GiB": (
        put("residents frigate gpumem_mib", "1.5 GiB"),
        "residents.frigate.gpumem_mib: must be a whole number of MiB without a unit; write 1536 (got '1.5 GiB')",
    ),
    "a budget in decimal units": (
        put("residents frigate gpumem_mib", "3G"),
        "residents.frigate.gpumem_mib: must be a whole number of MiB without a unit; write 2861 (got '3G')",
    ),
    "a budget as the API writes it": (
        put("residents frigate gpumem_mib", "5k"),
        "residents.frigate.gpumem_mib: must be a whole number of MiB without a unit; write 5000 (got '5k')",
    ),
    "a budget that no number says": (
        put("residents frigate gpumem_mib", "4Ei"),
        "residents.frigate.gpumem_mib: must be a whole number of MiB without a unit (got '4Ei')",
    ),
    "a budget of nothing in quotes": (
        put("residents frigate gpumem_mib", "0"),
        "residents.frigate.gpumem_mib: must be a whole number without quotes (got '0')",
    ),
    "a budget in words": (
        put("residents frigate gpumem_mib", "plenty"),
        "residents.frigate.gpumem_mib: must be a whole number of MiB without a unit (got 'plenty')",
    ),
    "a budget of true": (
        put("residents frigate gpumem_mib", True),
        "residents.frigate.gpumem_mib: must be a whole number (got true)",
    ),
    "a budget left empty": (
        put("residents frigate gpumem_mib", None),
        "residents.frigate.gpumem_mib: has no value; write one, or remove the key",
    ),
    "a budget beyond any device": (
        put("residents frigate gpumem_mib", 2**31 + 1),
        "residents.frigate.gpumem_mib: must be at most 2147483648 (got 2147483649)",
    ),
    "a duration with its unit": (
        put("watchdog interval_seconds", "5s"),
        "watchdog.interval_seconds: must be a whole number of seconds without a unit; write 5 (got '5s')",
    ),
    "a duration beyond the agent's minute": (
        put("watchdog interval_seconds", "2m"),
        "watchdog.interval_seconds: must be a whole number of seconds without a unit (got '2m')",
    ),
    "a duration in minutes": (
        put("watchdog cool_down_seconds", "2m"),
        "watchdog.cool_down_seconds: must be a whole number of seconds without a unit; write 120 (got '2m')",
    ),
    "an interval longer than the agent's minute": (
        put("watchdog interval_seconds", 60),
        "watchdog.interval_seconds: must be at most 30 (got 60)",
    ),
    "samples older than their readers believe": (
        put("exporter interval_seconds", 16),
        "exporter.interval_seconds: must be at most 15 (got 16)",
    ),
    "no replicas": (
        put("residents frigate replicas", 0),
        "residents.frigate.replicas: must be at least 1 (got 0)",
    ),
    "a priority of the system's own": (
        put("priorities gpu-workload value", 2_000_000_000),
        "priorities.gpu-workload.value: must be at most 1000000000 (got 2000000000)",
    ),
    "a negative quota": (
        put("queues cluster_queues gpu-cq quotas gpu-any nvidia.com/gpu nominal", -1),
        "queues.cluster_queues.gpu-cq.quotas.gpu-any.nvidia.com/gpu.nominal: must be at least 0 (got -1)",
    ),
    # Wrong types.
    "a list for a map": (
        put("residents", ["frigate"]),
        "residents: must be a map of keys (got a list)",
    ),
    "a string for a part": (
        put("pools", "t4"),
        "pools: must be a map of keys (got 't4')",
    ),
    "nothing for a tenant": (
        put("tenants immich", None),
        "tenants.immich: has no value; write one, or remove the key",
    ),
    "a map for a list": (
        put("queues flavors gpu-any tolerations", {"key": "nvidia.com/gpu"}),
        "queues.flavors.gpu-any.tolerations: must be a list (got a map)",
    ),
    "a boolean for a label": (
        put("pools t4 node_selector nvidia.com/gpu.present", True),
        "pools.t4.node_selector.nvidia.com/gpu.present: must be a string; quote it (got true)",
    ),
    "a word for a boolean": (
        put("tenants immich create_namespace", "no"),
        "tenants.immich.create_namespace: must be true or false (got 'no')",
    ),
    "a word of no list": (
        put("pools t4 sharing", "mig"),
        "pools.t4.sharing: must be one of 'memory' or 'whole' (got 'mig')",
    ),
    "a level of nobody's": (
        put("tenants immich pod_security", "strict"),
        "tenants.immich.pod_security: must be one of 'privileged', 'baseline' or 'restricted' (got 'strict')",
    ),
    "privileged without a reason": (
        put("tenants immich pod_security", "privileged"),
        "tenants.immich.pod_security_reason: is missing though pod_security is privileged: say why, or write baseline",
    ),
    "a reason for nothing": (
        put("tenants immich pod_security_reason", "because"),
        "tenants.immich.pod_security_reason: is for pod_security privileged; remove it (got 'because')",
    ),
    # Missing keys.
    "no cluster": (
        drop("cluster"),
        "cluster: is missing; add it",
    ),
    "no pools": (
        put("pools", {}),
        "pools: is missing; add it",
    ),
    "a resident without a budget": (
        drop("residents frigate gpumem_mib"),
        "residents.frigate.gpumem_mib: is missing; add it",
    ),
    "a pool without labels": (
        put("memory_pools node-4 node_selector", {}),
        "memory_pools.node-4.node_selector: must not be empty",
    ),
    # Names that Kubernetes would refuse.
    "a domain without a dot": (
        put("cluster resource_domain", "localhost"),
        "cluster.resource_domain: must be a DNS name such as example.com (got 'localhost')",
    ),
    "a domain in capitals": (
        put("cluster resource_domain", "Example.com"),
        "cluster.resource_domain: must be a DNS name such as example.com (got 'Example.com')",
    ),
    "a domain with a path": (
        put("cluster resource_domain", "example.com/gpu"),
        "cluster.resource_domain: must be a DNS name such as example.com (got 'example.com/gpu')",
    ),
    "a resident in capitals": (
        lambda config: config["residents"].update(Foo={"tenant": "frigate", "pool": "t4", "gpumem_mib": 1}),
        f"residents.Foo: the name must be {LABEL} (got 'Foo')",
    ),
    "a tenant with an underscore": (
        put("tenants team_a", {}),
        f"tenants.team_a: the name must be {LABEL} (got 'team_a')",
    ),
    "a tenant that ends in a dash": (
        put("tenants team-", {}),
        f"tenants.team-: the name must be {LABEL} (got 'team-')",
    ),
    "a label key with a space": (
        lambda config: config["pools"]["t4"]["node_selector"].update({"my gpu": "x"}),
        f"pools.t4.node_selector.my gpu: the name must be {LABEL_KEY} (got 'my gpu')",
    ),
    "a label value with a slash": (
        put("pools t4 node_selector gpu", "a/b"),
        f"pools.t4.node_selector.gpu: must be {LABEL_VALUE} (got 'a/b')",
    ),
    "an image that is none": (
        put("cluster agent_image", "Python:latest"),
        "cluster.agent_image: must be an image reference such as docker.io/library/python:3.13.9-slim-bookworm"
        " (got 'Python:latest')",
    ),
    "an image that moves": (
        put("cluster agent_image", "docker.io/library/python:latest"),
        "cluster.agent_image: is not pinned; write a digest (@sha256:…) or a full version (:1.2.3) "
        "(got 'docker.io/library/python:latest')",
    ),
    "an image without a tag": (
        put("scheduler image", "localhost:5000/kube-scheduler"),
        "scheduler.image: is not pinned; write a digest (@sha256:…) or a full version (:1.2.3) "
        "(got 'localhost:5000/kube-scheduler')",
    ),
    "more allocatable memory than there is": (
        put("memory_pools node-4 allocatable_mib", 62465),
        "memory_pools.node-4.allocatable_mib: must be at most memory_mib 62464 less the kubelet's "
        "eviction_threshold_mib (got 62465)",
    ),
    "a source that is none": (
        put("pools t4 source", "nvml"),
        "pools.t4.source: must be one of 'labels', 'slices' or 'declared' (got 'nvml')",
    ),
    "a source of what is not advertised": (
        put("pools batch source", "slices"),
        "pools.batch.source: has no use where sharing is whole, of which nothing is advertised; remove it",
    ),
    "a URL that is none": (
        put("on_demand ytdlp http_json url", "ytdlp-queue/status"),
        "on_demand.ytdlp.http_json.url: must be a URL such as http://queue.team-a.svc/status"
        " (got 'ytdlp-queue/status')",
    ),
    "a window without minutes": (
        put("on_demand tts window", {"between": "2-6"}),
        "on_demand.tts.window.between: must be two times of the day such as 02:00-06:00 (got '2-6')",
    ),
    "a URL with a port beyond all": (
        put("on_demand ytdlp http_json url", "http://x:99999/"),
        "on_demand.ytdlp.http_json.url: must be a URL such as http://queue.team-a.svc/status (got 'http://x:99999/')",
    ),
    "a URL to dots": (
        put("on_demand ytdlp http_json url", "http://../"),
        "on_demand.ytdlp.http_json.url: must be a URL such as http://queue.team-a.svc/status (got 'http://../')",
    ),
    "a URL to an address that is none": (
        put("on_demand ytdlp http_json url", "http://10.0.0.256/"),
        "on_demand.ytdlp.http_json.url: 10.0.0.256 is no address; name a host that there is (got 'http://10.0.0.256/')",
    ),
    "a URL to half an address": (
        put("on_demand ytdlp http_json url", "http://[:]/"),
        "on_demand.ytdlp.http_json.url: [:] is no address; name a host that there is (got 'http://[:]/')",
    ),
    "an empty window": (
        put("on_demand tts window", {"between": "02:00-02:00"}),
        "on_demand.tts.window.between: ends when it begins; write another end, or remove the window "
        "(got '02:00-02:00')",
    ),
    "a misspelt time zone": (
        put("on_demand tts window", {"between": "02:00-06:00", "time_zone": "Europe/Lodon"}),
        "on_demand.tts.window.time_zone: is no time zone; did you mean Europe/London? (got 'Europe/Lodon')",
    ),
    "a time zone by its abbreviation": (
        put("on_demand tts window", {"between": "02:00-06:00", "time_zone": "CEST"}),
        "on_demand.tts.window.time_zone: is no time zone; write that of a place, such as Europe/Berlin (got 'CEST')",
    ),
    "the extender's port": (
        put("scheduler port", 9443),
        "scheduler.port: is the extender's own in the same pod; write another, such as 9402 (got 9443)",
    ),
    "kube-scheduler's port": (
        put("scheduler port", 10259),
        "scheduler.port: is kube-scheduler's own in the same pod; write another, such as 9402 (got 10259)",
    ),
    # What the keys of one map say together.
    "a pool that shares memory it has not": (
        drop("pools t4 memory_mib"),
        "pools.t4.memory_mib: is missing though sharing is memory; write the device's size, or sharing: whole",
    ),
    "a pool of whole devices with a reserve": (
        put("pools batch reserve_mib", 100),
        "pools.batch.reserve_mib: has no use where sharing is whole; remove it, or write sharing: memory",
    ),
    "a pool of whole devices with a driver's part": (
        put("pools batch driver_reserved_mib", 100),
        "pools.batch.driver_reserved_mib: has no use where sharing is whole; remove it, or write sharing: memory",
    ),
    "a key that is no more": (
        put("pools t4 time_slices", 100),
        "pools.t4.time_slices: unknown key; known here: device_count, driver_reserved_mib, driver_version, enforce, "
        "floor_mib, memory_mib, node_selector, nodes, placement, price_per_gib_hour, require_cap, "
        "reserve_mib, sharing, source, toolkit_version",
    ),
    "a reserve as large as the device": (
        put("pools t4 reserve_mib", 15360),
        "pools.t4.reserve_mib: must be less than memory_mib 15360 (got 15360)",
    ),
    "a floor as high as the device": (
        put("pools t4 floor_mib", 20000),
        "pools.t4.floor_mib: must be less than memory_mib 15360 (got 20000)",
    ),
    "a limit under the request": (
        put("memory_pools node-4 workloads embeddings limit_mib", 5119),
        "memory_pools.node-4.workloads.embeddings.limit_mib: must be at least request_mib 5120 (got 5119)",
    ),
    "a peak over the limit": (
        put("memory_pools node-4 workloads inference peak_mib", 40000),
        "memory_pools.node-4.workloads.inference.peak_mib: must be from steady_mib 5120 to limit_mib 32768 (got 40000)",
    ),
    "two demand signals": (
        put("on_demand ytdlp window", {"between": "02:00-06:00"}),
        "on_demand.ytdlp: takes one demand signal or none, got http_json, window; remove one",
    ),
    "a borrowing limit without a cohort": (
        put("queues cluster_queues gpu-cq quotas gpu-any nvidia.com/gpu borrowing_limit", 1),
        "queues.cluster_queues.gpu-cq.cohort: is missing though a quota has a borrowing_limit or lending_limit; "
        "name one or remove them",
    ),
    "a lending limit over nominal": (
        lambda config: config["queues"]["cluster_queues"]["gpu-cq"].update(
            cohort="gpus", quotas={"gpu-any": {"nvidia.com/gpu": {"nominal": 1, "lending_limit": 2}}}
        ),
        "queues.cluster_queues.gpu-cq.quotas.gpu-any.nvidia.com/gpu.lending_limit: must be at most nominal 1 (got 2)",
    ),
    "flavors that list other resources": (
        put("queues cluster_queues gpu-cq quotas gpu-any", {}),
        "queues.cluster_queues.gpu-cq.quotas: every flavor must list the same resources, at least one",
    ),
    "a Kueue whose quota can be bypassed": (
        put("kueue version", "0.18.1"),
        "kueue.version: has quotas that can be bypassed; write 0.18.6, 0.19.2 or later (got '0.18.1')",
    ),
    "the next Kueue whose quota can be bypassed": (
        put("kueue version", "0.19.1"),
        "kueue.version: has quotas that can be bypassed; write 0.18.6, 0.19.2 or later (got '0.19.1')",
    ),
    "a Kueue of any version": (
        put("kueue version", "latest"),
        "kueue.version: must be a version such as 0.19.2 (got 'latest')",
    ),
}


@pytest.mark.parametrize(("change", "line"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_mistake_is_refused_with_its_path_its_value_and_what_to_change(change: Change, line: str) -> None:
    assert refusal(change) == [f"gpu-tenancy:{line}"]


def test_the_prod_stack_is_accepted() -> None:
    stack = settings.load_file(PROD)
    assert sum(seat.gpumem_mib for seat in stack.residents.values() if seat.pool == "t4") == 13300
    assert stack.pools["batch"].sharing is Sharing.WHOLE


def test_the_ledger_holds_every_promise_of_the_prod_stack() -> None:
    ledger = settings.load_file(PROD).ledger()
    assert ledger.promised_mib("t4") == 13300
    assert {pool.name: pool.advertised_mib for pool in ledger.pools} == {"t4": 14000, "node-4": 14000, "batch": 0}
    assert ledger.quota_gpus("batch") == 1
    assert ledger.queue_tenants == ("team-a", "team-b")
    assert [tenant.name for tenant in ledger.on_demand] == ["ebook2audiobook", "tts", "ytdlp"]


def test_a_pool_keeps_what_a_drivers_part_is_known_to_be_unless_it_says_its_own() -> None:
    config = raw()
    del config["pools"]["t4"]["driver_reserved_mib"]
    shared = settings.parse(config).ledger().shared_pools
    assert {pool.name: pool.driver_reserved_mib for pool in shared} == {"t4": 450, "node-4": 450}
    config["pools"]["t4"]["driver_reserved_mib"] = 0
    assert settings.parse(config).pools["t4"].driver_reserved_mib == 0


def test_a_quota_is_the_queues_own_and_what_it_borrows_apart() -> None:
    config = raw()
    limits = {"nominal": 1, "borrowing_limit": 2}
    queues = config["queues"]["cluster_queues"]
    queues["gpu-cq"] |= {"cohort": "gpus", "quotas": {"gpu-any": {"nvidia.com/gpu": limits}}}
    queues["lends"] = {"cohort": "gpus", "quotas": {"gpu-any": {"nvidia.com/gpu": {"nominal": 2}}}}
    ledger = settings.parse(config).ledger()
    (quota, _) = ledger.quotas
    assert (quota.nominal, quota.borrowing, quota.most) == (1, 2, 3)
    assert ledger.quota_gpus("batch") == 3


@pytest.mark.parametrize(
    "url", ["http://x", "http://a.b.svc:65535/x?y=1", "https://[::1]:80/", "http://10.0.0.1:1/", "http://X./?q"]
)
def test_a_url_of_any_host_is_accepted(url: str) -> None:
    assert refusal(put("on_demand ytdlp http_json url", url)) == []


@pytest.mark.parametrize("zone", ["UTC", "Etc/GMT+1", "America/Port-au-Prince", "EST5EDT"])
def test_every_time_zone_there_is_is_accepted(zone: str) -> None:
    assert refusal(put("on_demand tts window", {"between": "22:00-02:00", "time_zone": zone})) == []


def test_a_machine_without_time_zones_refuses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.base.spec.available_timezones", set)
    assert refusal(put("on_demand tts window", {"between": "22:00-02:00", "time_zone": "Mars/North"})) == []


@pytest.mark.parametrize("version", ["0.18.6", "0.18.7", "0.19.2", "0.20.0", "1.0.0"])
def test_a_kueue_that_keeps_to_its_quotas_is_accepted(version: str) -> None:
    assert refusal(put("kueue version", version)) == []


def test_all_mistakes_are_told_at_once_also_within_one_map() -> None:
    lines = refusal(
        put("pools t4 nodes", 0),
        put("pools t4 reserve_mib", 20000),
        put("pools t4 colour", "green"),
        put("residents frigate pool", "t5"),
        put("residents immich-ml gpumem_mib", "3Gi"),
        put("tenants default", {}),
    )
    assert sorted(lines) == [
        "gpu-tenancy:pools.t4.colour: unknown key; known here: device_count, driver_reserved_mib, driver_version, "
        "enforce, floor_mib, memory_mib, node_selector, nodes, placement, price_per_gib_hour, require_cap, "
        "reserve_mib, sharing, source, toolkit_version",
        "gpu-tenancy:pools.t4.nodes: must be at least 1 (got 0)",
        "gpu-tenancy:pools.t4.reserve_mib: must be less than memory_mib 15360 (got 20000)",
        "gpu-tenancy:residents.frigate.pool: 't5' is no key of pools; known there: batch, node-4, t4",
        "gpu-tenancy:residents.immich-ml.gpumem_mib: must be a whole number of MiB without a unit; write 3072 "
        "(got '3Gi')",
        "gpu-tenancy:tenants.default: this namespace is Kubernetes' own; give the tenant one of its own",
    ]


@pytest.mark.parametrize("part", ["alerts", "kueue", "queues", "memory_pools", "admission", "unbudgeted"])
def test_a_part_that_is_empty_counts_as_left_out(part: str) -> None:
    config = raw()
    del config["scheduler"]  # which needs admission
    if part == "admission":
        del config["memory_pools"]  # which need it
    config[part] = {}
    emptied = settings.parse(config)
    del config[part]
    assert settings.parse(config) == emptied


OVER = "budgets: t4: 18300 MiB promised, 14000 advertised (4300 over): llama-swap 10000, immich-ml 3000, …; "
AGAIN = "budgets: t4: 16300 MiB promised, 14000 advertised (2300 over): llama-swap 10000, immich-ml 3000, …; "


@pytest.mark.parametrize(
    ("change", "said", "over"),
    [
        (put("residents frigate gpumem_mib", "x"), "residents.frigate.gpumem_mib", AGAIN),
        (put("residents frigate colour", "x"), "residents.frigate.colour", AGAIN),
        (put("tenants frigate", 1), "tenants.frigate", OVER),
        (put("pools batch nodes", 0), "pools.batch.nodes", OVER),
        (put("cluster agent_image", 1), "cluster.agent_image", OVER),
        (drop("cluster"), "cluster", OVER),
        (put("watchdog", 1), "watchdog", OVER),
        (put("queues local_queues", 1), "queues.local_queues", OVER),
        (put("resident", {}), "resident", OVER),
        (put("tenants default", {}), "tenants.default", OVER),
    ],
)
def test_a_wrong_shape_hides_no_sum(change: Change, said: str, over: str) -> None:
    """One seat too large, and a mistake elsewhere: a seat that cannot be read counts nothing, the others count."""
    first, *others = refusal(put("residents llama-swap gpumem_mib", 10000), change)
    assert first.startswith(f"gpu-tenancy:{said}: ")
    assert [line for line in others if line.startswith("budgets")] == [f"{over}lower a budget or raise pools.t4"]


def test_a_wrong_shape_in_a_queue_hides_no_other_queues_devices() -> None:
    quotas = put("queues cluster_queues gpu-cq quotas gpu-any nvidia.com/gpu nominal", 2)
    wrong = put("queues cluster_queues other", {"quotas": 1})
    _, over = refusal(quotas, wrong)
    assert over.startswith("gpu-quota: ClusterQueue gpu-cq: may hand out 2 nvidia.com/gpu (nominal and borrowed) of")


def test_a_sum_is_the_gates_alone_where_nothing_else_is_wrong() -> None:
    assert refusal(put("residents llama-swap gpumem_mib", 10000)) == []


def test_where_nothing_can_be_read_nothing_is_summed() -> None:
    assert refusal(put("pools t4", 1), put("pools node-4", 1), put("pools batch", 1))[0].startswith("gpu-tenancy:pools")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, item in items for place in places(item, (*path, name)))]


@search.examples(30, soak=1000)
@given(st.data())
def test_whatever_stands_anywhere_is_accepted_or_refused_line_by_line(data: st.DataObject) -> None:
    config: Any = raw()
    *parents, last = data.draw(st.sampled_from(places(config)[1:]))
    target = config
    for part in parents:
        target = target[part]
    target[last] = data.draw(JSON)
    lines = refusal(*(put(part, value) for part, value in config.items()))
    starts = ("gpu-tenancy:", *(f"{rule.id}: " for rule in RULES))
    assert all(line.startswith(starts) and ": " in line and "pydantic" not in line for line in lines)


def test_the_engine_hands_over_json_and_left_out_parts_as_empty_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {f"gpu-tenancy:{name}": json.dumps(value) for name, value in raw().items() if name != "alerts"}
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({**config, "gpu-tenancy:alerts": "{}", "kubernetes:context": "1"}))
    assert settings.load() == settings.parse({name: value for name, value in raw().items() if name != "alerts"})


def test_a_scalar_from_the_engine_is_refused_as_no_map(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {f"gpu-tenancy:{name}": json.dumps(value) for name, value in raw().items()}
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({**config, "gpu-tenancy:alerts": "all of them"}))
    with pytest.raises(settings.ConfigError) as refused:
        settings.load()
    assert str(refused.value) == "gpu-tenancy:alerts: must be a map of keys (got 'all of them')"


def test_an_encrypted_key_is_refused_and_its_value_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {f"gpu-tenancy:{name}": json.dumps(value) for name, value in raw().items()}
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({**config, "gpu-tenancy:alerts": '{"namespace": "S3cret"}'}))
    monkeypatch.setenv("PULUMI_CONFIG_SECRET_KEYS", json.dumps(["gpu-tenancy:alerts", "other:password"]))
    with pytest.raises(settings.ConfigError) as refused:
        settings.load()
    assert str(refused.value) == "gpu-tenancy:alerts: is encrypted, but nothing here is secret; write it plainly"


def test_an_encrypted_value_in_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text('config: {"gpu-tenancy:alerts": {labels: {release: {secure: "v1:abc"}}}}')
    with pytest.raises(settings.ConfigError) as refused:
        settings.load_file(path)
    assert str(refused.value) == "gpu-tenancy:alerts: is encrypted, but nothing here is secret; write it plainly"


FOREIGN = {
    "gpu_tenancy:residents": "did you mean gpu-tenancy:residents?",
    "GPU-TENANCY:watchdog": "did you mean gpu-tenancy:watchdog?",
    "gpu-tenancy:config:watchdog": "did you mean gpu-tenancy:watchdog?",
    "gpu-tenant:resident": "did you mean gpu-tenancy:residents?",
    "other:residents": "did you mean gpu-tenancy:residents?",
    ":residents": "did you mean gpu-tenancy:residents?",
    "kubernets:context": "did you mean kubernetes:context?",
    "aws:region": "what is read here begins with one of gpu-tenancy, kubernetes, pulumi; remove it",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_key_that_is_neither_ours_nor_a_providers_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the file, and where the engine alone has it."""
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text(PROD.read_text().replace("config:\n", f"config:\n  {name}: {{}}\n  kubernetes:context: x\n"))
    with pytest.raises(settings.ConfigError) as refused:
        settings.load_file(path)
    assert str(refused.value) == f"{name}: unknown key; {FOREIGN[name]}"
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(settings.ConfigError) as refused:
        of_the_engine(monkeypatch, {**engines(), name: "{}"}, tmp_path / "elsewhere")
    assert str(refused.value) == f"{name}: unknown key; {FOREIGN[name]}"


def engines() -> dict[str, str]:
    """Prod's configuration as the engine hands it over."""
    return {f"gpu-tenancy:{name}": json.dumps(value) for name, value in raw().items()}


def of_the_engine(monkeypatch: pytest.MonkeyPatch, config: dict[str, str], folder: Path) -> settings.StackSettings:
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(config))
    monkeypatch.setattr("pulumi.get_stack", lambda: "x")
    monkeypatch.chdir(folder)
    return settings.load()


def test_a_bare_key_is_read_as_the_projects(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text(PROD.read_text().replace("gpu-tenancy:watchdog:", "watchdog:"))
    assert settings.load_file(path) == settings.load_file(PROD)


def test_a_problem_of_the_file_is_one_line_and_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.x.yaml"
    text = PROD.read_text().replace("gpumem_mib: 5000", "gpumem_mib: 99999999999999999999")
    path.write_text(text.replace("gpumem_mib: 2000", "gpumem_mib: 0"))
    with pytest.raises(settings.ConfigError) as refused:
        settings.load_file(path)
    first, second = str(refused.value).splitlines()
    assert "residents.llama-swap.gpumem_mib: 99999999999999999999 is another number to some readers" in first
    assert second == "gpu-tenancy:residents.frigate.gpumem_mib: must be at least 1 (got 0)"


def test_a_name_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text(PROD.read_text().replace("    immich: {}\n", "    immich: {}\n    2.50: {}\n"))
    with pytest.raises(settings.ConfigError) as refused:
        settings.load_file(path)
    assert str(refused.value).endswith(": tenants.2.50: 2.50 is not a text in YAML; quote it")
    assert "\n" not in str(refused.value)


def test_what_the_engine_has_is_what_the_stack_file_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text(PROD.read_text())
    assert of_the_engine(monkeypatch, engines(), tmp_path) == settings.load_file(PROD)
    with pytest.raises(settings.ConfigError) as refused:
        of_the_engine(monkeypatch, {**engines(), "gpu-tenancy:gate": '{"armed": false}'}, tmp_path)
    assert str(refused.value) == "gpu-tenancy:gate: Pulumi.x.yaml says otherwise than the engine; write it there"
    path.write_text(PROD.read_text().replace("gpumem_mib: 5000", "gpumem_mib: 05000"))
    with pytest.raises(settings.ConfigError, match="05000 is octal, 2560 to the engine; write 5000, or quote it"):
        of_the_engine(monkeypatch, engines(), tmp_path)


@pytest.mark.parametrize("part", ["watchdog", "alerts", "pools"])
def test_a_part_without_a_value_is_refused_by_chart_and_engine_alike(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"gpu-tenancy:{part}: has no value; write one, or remove the key" in refusal(put(part, None))
    with pytest.raises(settings.ConfigError, match=f"gpu-tenancy:{part}: has no value; write one, or remove the key"):
        of_the_engine(monkeypatch, {**engines(), f"gpu-tenancy:{part}": ""}, tmp_path)


def test_a_value_that_may_be_left_out_is_not_left_empty() -> None:
    assert refusal(put("pools batch memory_mib", None), put("on_demand tts window", None)) == [
        "gpu-tenancy:pools.batch.memory_mib: has no value; write one, or remove the key",
        "gpu-tenancy:on_demand.tts.window: has no value; write one, or remove the key",
    ]


def test_settings_cannot_be_changed_after_they_were_read() -> None:
    with pytest.raises(ValueError, match="frozen"):
        settings.load_file(PROD).pools["t4"].nodes = 2  # type: ignore[misc]


# Of the provider's configuration what classes alone have no use for: a namespace, other kinds, what is warned of.
NOT_OF_CLASSES = {
    "enableConfigMapMutable",
    "enableSecretMutable",
    "enableServerSideApply",
    "helmReleaseSettings",
    "namespace",
    "suppressDeprecationWarnings",
    "suppressHelmHookWarnings",
}


def test_every_key_of_the_provider_is_followed_or_known_to_be_of_no_use() -> None:
    words = [name.split("_") for name, value in vars(ProviderArgs).items() if isinstance(value, property)]
    keys = {first + "".join(map(str.title, rest)) for first, *rest in words}
    assert keys == {*settings.REACHES, *NOT_OF_CLASSES}


def test_a_provider_that_reaches_the_cluster_as_the_stacks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"kubernetes:context": "lab", "kubernetes:namespace": "x", "gpu-tenancy:context": "other"}
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(config))
    assert settings.provider() == {"context": "lab"}
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({"kubernetes:kubeconfig": "{}"}))
    (kubeconfig,) = settings.provider().values()
    assert isinstance(kubeconfig, pulumi.Output)  # a secret
