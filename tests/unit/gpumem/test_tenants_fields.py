"""Tests that no field of a tenant's own objects ends a report, or changes what it says of another tenant.

FIELDS is the table of docs/choosing/fields.md, as far as the reports read it.
"""

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpumem import cluster
from gpumem.cluster import ClusterSnapshot
from gpumem.draw import who_text
from gpumem.draw_why import why_text
from gpumem.evidence import gather, target_of
from gpumem.fit import fit
from gpumem.output import as_json, as_yaml, data
from gpumem.paper import Paper
from gpumem.who import Filter, who
from gpumem.why import why
from gpumem.without import without
from tenancy.fit.smallest_change import Wanted
from tests.support.kubectl import NAMES, NOW, SYSTEM, FakeApi, api, pod

TEXTS = st.one_of(
    st.text(max_size=30), st.sampled_from(["", "x" * 5000, "\x1b[2J", "0,1", "99999999999", "GPU-k8s-node1-0"])
)
AMOUNTS = st.one_of(
    st.integers(min_value=0, max_value=2**70).map(str),
    st.sampled_from(["0", "1m", "1500m", "5k", "1e3", "9E", "99999E", "1e999", "12Ki", "0.1", "-1", "", "x"]),
)
SECONDS = st.one_of(st.none(), st.integers(min_value=0, max_value=2**63 - 1))
# For each field, the values that a tenant may write, and a path below the Pod. `*` is the first container.
FIELDS: Mapping[tuple[str, ...], st.SearchStrategy[Any]] = {
    ("spec", "containers", "*", "resources", "limits", NAMES.gpumem): AMOUNTS,
    ("spec", "containers", "*", "resources", "limits", NAMES.gpu_count): AMOUNTS,
    ("spec", "containers", "*", "resources", "limits", "nvidia.com/gpu"): AMOUNTS,
    ("spec", "containers", "*", "resources", "requests", "cpu"): AMOUNTS,
    ("spec", "resources", "limits", "memory"): AMOUNTS,
    ("spec", "overhead", "cpu"): AMOUNTS,
    ("spec", "terminationGracePeriodSeconds"): SECONDS,
    ("metadata", "deletionGracePeriodSeconds"): SECONDS,
    ("metadata", "deletionTimestamp"): st.sampled_from([None, "2026-11-22T11:59:00Z", "2318-12-31T23:59:59Z"]),
    ("metadata", "annotations", NAMES.device_index): TEXTS,
    ("metadata", "annotations", NAMES.device_uuid): TEXTS,
    ("metadata", "labels", NAMES.seat_label): st.sampled_from(["", "llama-swap", "immich-ml", "nobody"]),
    ("metadata", "ownerReferences"): st.lists(
        st.fixed_dictionaries(
            {"apiVersion": TEXTS, "kind": TEXTS, "name": TEXTS, "uid": TEXTS}, optional={"controller": st.booleans()}
        ),
        max_size=2,
    ),
    ("metadata", "finalizers"): st.lists(TEXTS, max_size=2),
    ("spec", "schedulerName"): TEXTS,
    ("spec", "schedulingGates"): st.lists(st.fixed_dictionaries({"name": TEXTS}), max_size=2),
    ("spec", "nodeSelector"): st.dictionaries(TEXTS, TEXTS, max_size=2),
    ("spec", "tolerations"): st.lists(
        st.fixed_dictionaries({}, optional={"key": TEXTS, "operator": st.just("Exists"), "value": TEXTS}), max_size=2
    ),
    ("status", "nominatedNodeName"): st.sampled_from(["", "k8s-node1", "nobody"]),
    ("status", "message"): TEXTS,
}


@st.composite
def tenants_pods(draw: st.DrawFn) -> dict[str, Any]:
    """Draws a pod of the tenant immich, with up to five fields as the tenant wrote them."""
    drawn = pod("ml", 3000, on=draw(st.sampled_from([None, "k8s-node1"])))
    for path in draw(st.lists(st.sampled_from([*FIELDS]), max_size=5, unique=True)):
        *parents, field = path
        at: Any = drawn
        for parent in parents:
            at = at[0] if parent == "*" else at.setdefault(parent, {})
        at[field] = draw(FIELDS[path])
    return drawn


def reading(*pods: dict[str, Any]) -> tuple[FakeApi, ClusterSnapshot]:
    found = api([*pods, pod("swap", 5000, "llama-swap", on="k8s-node1")])
    return found, cluster.read(found, SYSTEM, str)  # type: ignore[arg-type]


def of_others(shown: ClusterSnapshot) -> object:
    found = who(shown)
    others = [pod for node in found.nodes for each in node.devices for pod in each.pods if pod.namespace != "immich"]
    return others, [(pool.promised_mib, pool.unpromised_mib) for pool in found.pools], found.gates, found.queues


@given(tenants_pods())
@settings(derandomize=True, max_examples=200, deadline=None)
def test_no_field_of_a_tenant_ends_a_report_or_changes_what_it_says_of_others(mine: dict[str, Any]) -> None:
    found, shown = reading(mine)
    assert of_others(shown) == of_others(reading()[1])
    assert "\x1b" not in who_text(who(shown), Paper())
    reports = [("who", who(shown)), ("who", who(shown, Filter(namespace="immich")))]
    for name, namespace in (("ml", "immich"), ("swap", "llama-swap")):
        made = why(gather(found, shown, target_of(name, namespace), SYSTEM))  # type: ignore[arg-type]
        assert "\x1b" not in why_text(made, Paper())
        reports.append(("why", made))
    assert reports[-1][1].fine
    reports.append(("fit", fit(shown.ledger, shown, Wanted(mib=1000, count=1, replicas=1), "t4", None)))
    reports.append(("without", without(shown, "k8s-node1")))
    for kind, report in reports:
        assert as_json(data(kind, report))
        assert as_yaml(data(kind, report))
    assert shown.now == NOW
