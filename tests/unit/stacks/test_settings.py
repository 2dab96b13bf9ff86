"""The settings accept right values, and report an error for each wrong value."""

import pytest

from stacks import settings
from tests.support.prod import Change, drop, put, raw, refusal

ABSENT = object()
LABEL = "lower-case letters, digits and '-' between them, at most 63 characters"
LABEL_KEY = "a label key such as example.com/gpu: a name of at most 63 characters, a DNS name before it"
LABEL_VALUE = "at most 63 letters, digits, '-', '_' and '.', the first and last a letter or digit"

KEYS_OF_A_POOL = (
    "assumed, cpus, device_count, driver_reserved_mib, enforce, floor_mib, host_memory_mib, least_nodes, memory_mib, "
    "node_selector, nodes, price_per_gib_hour, reserve_mib, sharing, source"
)
WHOLE_MIB = "must be a whole number of MiB without unit or quotes, such as 3072 for 3 GiB"
URL = "must be a URL such as http://queue.team-a.svc/status"
UNPINNED = "is not pinned; write a digest (@sha256:…) or a full version (:1.2.3)"
BYPASSED = "has quotas that can be bypassed; write 0.18.6, 0.19.2 or later"
BUDGET, TTS, QUOTAS = "residents frigate gpumem_mib", "on_demand tts window", "queues cluster_queues gpu-cq quotas"
YTDLP_URL = "on_demand ytdlp http_json url"

# Each case has a key, a wrong value, and the error message.
WRONG_VALUES: list[tuple[str, object, str]] = [
    # Unknown keys.
    ("resident", {"x": {}}, "unknown key; did you mean residents?"),
    ("residents frigate gpumem_gib", 2, "unknown key; did you mean gpumem_mib?"),
    # Numbers and units.
    (BUDGET, 30.5, f"{WHOLE_MIB} (got 30.5)"),
    (BUDGET, "3000", f"{WHOLE_MIB} (got '3000')"),
    (BUDGET, None, "has no value; write one, or remove the key"),
    (BUDGET, 2**31 + 1, "must be at most 2147483648 (got 2147483649)"),
    (
        "pools t4 price_per_gib_hour",
        "0.02 EUR",
        "must be a number such as 0.02, without quotes or a currency (got '0.02 EUR')",
    ),
    ("watchdog minimum_age_seconds", "5s", "must be a whole number of seconds without unit or quotes (got '5s')"),
    ("exporter port", 9401, "unknown key; known here: "),
    ("residents frigate replicas", 0, "must be at least 1 (got 0)"),
    ("residents frigate devices_per_pod", 0, "must be at least 1 (got 0)"),
    ("priorities gpu-workload value", 2_000_000_000, "must be at most 1000000000 (got 2000000000)"),
    (f"{QUOTAS} gpu-any nvidia.com/gpu nominal", -1, "must be at least 0 (got -1)"),
    (
        f"{QUOTAS} gpu-any nvidia.com/gpu nominal",
        "0.0001",
        "must have no digits below a thousandth (got 0.0001)",
    ),
    # Wrong types.
    ("on_demand tts window", "22:00-06:00", "must be a map of keys (got '22:00-06:00')"),
    ("tenants immich", None, "has no value; write one, or remove the key"),
    ("pools t4 node_selector nvidia.com/gpu.present", True, "must be a string; quote it (got true)"),
    ("watchdog armed", "no", "must be true or false (got 'no')"),
    ("pools t4 sharing", "mig", "must be one of 'memory' or 'whole' (got 'mig')"),
    # A key of an earlier version, whose nearest name would do harm.
    (
        "admission trusted_namespaces",
        ["argocd"],
        "is not read any more, because the policy pack judges no rights; remove it",
    ),
    # Missing keys.
    ("cluster", ABSENT, "is missing; add it"),
    ("pools", {}, "is missing; add it"),
    (BUDGET, ABSENT, "is missing; add it"),
    ("memory_pools node-4 node_selector", {}, "must not be empty"),
    # Names that Kubernetes refuses.
    ("cluster resource_domain", "Example.com", "must be a DNS name such as example.com (got 'Example.com')"),
    ("tenants team_a", {}, f"the name must be {LABEL} (got 'team_a')"),
    ("pools t4 node_selector gpu", "a/b", f"must be {LABEL_VALUE} (got 'a/b')"),
    (
        "cluster agent_image",
        "Python:latest",
        "must be an image reference such as docker.io/library/python:3.13.9-slim-bookworm (got 'Python:latest')",
    ),
    (
        "cluster agent_image",
        "docker.io/library/python:3.13.9-alpine3.22",
        "has alpine in its tag, and the exporter needs glibc for the driver's library; write an image with glibc, such "
        "as one with -slim-bookworm (got 'docker.io/library/python:3.13.9-alpine3.22')",
    ),
    (
        "cluster agent_image",
        "docker.io/library/python:3.10.19-slim",
        "is Python 3.10, and the agents need 3.11; write a later one (got 'docker.io/library/python:3.10.19-slim')",
    ),
    ("cluster agent_image", "docker.io/python:latest", f"{UNPINNED} (got 'docker.io/python:latest')"),
    ("scheduler image", "localhost:5000/scheduler", f"{UNPINNED} (got 'localhost:5000/scheduler')"),
    (YTDLP_URL, "ytdlp-queue/status", f"{URL} (got 'ytdlp-queue/status')"),
    (YTDLP_URL, "http://x:99999/", f"{URL} (got 'http://x:99999/')"),
    # Two keys of the same map contradict each other.
    (
        "cluster agent_image_has_code",
        True,
        "needs agent_image with a digest (NAME@sha256:…), because a tag can get other code",
    ),
    (
        "pools t4 memory_mib",
        ABSENT,
        "is missing though sharing is memory; write the device's size, or sharing: whole",
    ),
    (
        "pools batch reserve_mib",
        100,
        "has no use where sharing is whole; remove it, or write sharing: memory",
    ),
    ("pools t4 reserve_mib", 15360, "must be less than memory_mib 15360 (got 15360)"),
    (
        "memory_pools node-4 workloads inference peak_mib",
        40000,
        "must be from steady_mib 5120 to limit_mib 32768 (got 40000)",
    ),
    ("kueue version", "0.19.1", f"{BYPASSED} (got '0.19.1')"),
    ("kueue version", "latest", "must be a version such as 0.19.2 (got 'latest')"),
]
# The wrong value of one key causes an error message about another key.
OTHER_KEYS: list[tuple[str, object, str]] = [
    (
        "queues flavors gpu-any tolerations",
        [{"key": "nvidia.com/gpu", "efect": "NoSchedule"}],
        "queues.flavors.gpu-any.tolerations.0.efect: unknown key; did you mean effect?",
    ),
    (
        "pools t4 node_selector",
        {"my gpu": "x", "nvidia.com/gpu.sharing-strategy": "time-slicing"},
        f"pools.t4.node_selector.my gpu: the name must be {LABEL_KEY} (got 'my gpu')",
    ),
    (
        TTS,
        {"between": "2-6"},
        "on_demand.tts.window.between: must be two times of the day such as 02:00-06:00 (got '2-6')",
    ),
    (
        TTS,
        {"between": "02:00-02:00"},
        "on_demand.tts.window.between: ends when it begins; write another end, or remove the window "
        "(got '02:00-02:00')",
    ),
    (
        TTS,
        {"between": "02:00-06:00", "time_zone": "CEST"},
        "on_demand.tts.window.time_zone: is no time zone; write that of a place, such as Europe/Berlin (got 'CEST')",
    ),
    (
        "on_demand ytdlp window",
        {"between": "02:00-06:00"},
        "on_demand.ytdlp: takes one demand signal or none, got http_json, window; remove one",
    ),
]


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [*((path, value, f"{path.replace(' ', '.')}: {said}") for path, value, said in WRONG_VALUES), *OTHER_KEYS],
)
def test_a_mistake_is_refused_with_its_path_its_value_and_what_to_change(path: str, value: object, line: str) -> None:
    assert refusal(drop(path) if value is ABSENT else put(path, value)) == [f"gpu-tenancy:{line}"]


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


ACCEPTED: list[tuple[str, object]] = [
    *((YTDLP_URL, url) for url in ("http://x", "http://a.b.svc:65535/x?y=1", "https://[::1]:80/", "http://X./?q")),
    *((TTS, {"between": "22:00-02:00", "time_zone": zone}) for zone in ("UTC", "Etc/GMT+1", "America/Port-au-Prince")),
    *(("kueue version", version) for version in ("0.18.6", "0.19.2", "0.20.0", "1.0.0")),
    ("residents llama-swap gpumem_mib", 10000),
]


@pytest.mark.parametrize(("path", "value"), ACCEPTED)
def test_a_right_value_is_accepted(path: str, value: object) -> None:
    assert refusal(put(path, value)) == []


def test_all_mistakes_are_reported_at_once_also_within_one_map() -> None:
    lines = refusal(
        put("pools t4 nodes", 0),
        put("pools t4 reserve_mib", 20000),
        put("pools t4 colour", "green"),
        put("residents frigate pool", "t5"),
        put("residents immich-ml gpumem_mib", "3Gi"),
        put("tenants kube-public", {}),
    )
    assert sorted(lines) == [
        f"gpu-tenancy:pools.t4.colour: unknown key; known here: {KEYS_OF_A_POOL}",
        "gpu-tenancy:pools.t4.nodes: must be at least 1 (got 0)",
        "gpu-tenancy:pools.t4.reserve_mib: must be less than memory_mib 15360 (got 20000)",
        "gpu-tenancy:residents.frigate.pool: 't5' is no key of pools; known there: batch, node-4, t4",
        "gpu-tenancy:residents.immich-ml.gpumem_mib: must be a whole number of MiB without unit or quotes, "
        "such as 3072 for 3 GiB (got '3Gi')",
        "gpu-tenancy:tenants.kube-public: this namespace is Kubernetes' own; give the tenant one of its own",
    ]


@pytest.mark.parametrize("part", settings.specs())
def test_a_part_that_is_empty_has_all_its_defaults_or_is_told_what_it_lacks(part: str) -> None:
    config = raw() | {part: {}}
    required = sorted(name for name, field in settings.specs()[part].model_fields.items() if field.is_required())
    if not required:
        assert getattr(settings.parse(config), part) == settings.specs()[part]()
        return
    with pytest.raises(settings.ConfigError) as refused:
        settings.parse(config)
    for name in required:
        assert f"gpu-tenancy:{part}.{name}: is missing; add it" in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "account"),
    [
        ([], "kueue-system:kueue-controller-manager"),
        ([put("kueue namespace", "queueing")], "queueing:kueue-controller-manager"),
        ([drop("kueue")], "kueue-system:kueue-controller-manager"),
        ([drop("kueue"), put("queues installed_kueue", {"namespace": "q", "service_account": "boss"})], "q:boss"),
    ],
)
def test_kueue_is_known_by_its_account(changes: list[Change], account: str) -> None:
    config = raw()
    for change in changes:
        change(config)
    assert settings.parse(config).kueue_account == f"system:serviceaccount:{account}"


def test_a_number_with_a_comma_is_named_as_it_was_meant() -> None:
    """Before the fix, the message asked to remove the second half, which left a seat of 14 MiB."""
    config = raw()
    budget = config["residents"]["llama-swap"]
    config["residents"]["llama-swap"] = {"gpumem_mib": 14, "336": None} | {
        key: value for key, value in budget.items() if key != "gpumem_mib"
    }
    with pytest.raises(settings.ConfigError) as refused:
        settings.parse(config)
    assert (
        "gpu-tenancy:residents.llama-swap.gpumem_mib: YAML reads 14,336 as two keys; write 14336"
        in str(refused.value).splitlines()
    )
