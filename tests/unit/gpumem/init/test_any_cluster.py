"""Tests that the settings and the policy pack accept each stack file that init proposes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem import checkout, survey
from gpumem.init.propose import find_gpus, propose
from gpumem.init.stack_text import document, stack_text
from gpumem.survey import SurveyError
from tenancy.names import PROJECT
from tests.support.given_clusters import GPU, Cluster, Object, device_slice, labelled, node, of_deployment
from tests.support.random_clusters import cluster as random_cluster
from tests.support.yaml_trees import plain

CARDS = {
    "Tesla-T4": 15360,
    "NVIDIA-L4": 23034,
    "NVIDIA-H100-80GB-HBM3": 81559,
    "NVIDIA-A2-MIG-1g.5gb": 4864,
    "tiny": 900,
}
NAMESPACES = ("a", "b", "c", "default", "kube-system")


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    found = Cluster(nodes=[node("without")], version=draw(st.sampled_from(["v1.36.3", "v1.36.3", "v1.34.0"])))
    free = {}
    for number in range(draw(st.integers(1, 5))):
        name, card = f"n{number}", draw(st.sampled_from(sorted(CARDS)))
        count, replicas = draw(st.integers(1, 4)), draw(st.sampled_from([1, 1, 10]))
        how = draw(st.sampled_from(["labels", "labels", "slices", "resource"]))
        free[name] = count * (replicas if how == "labels" else 1)
        if how == "labels":
            found.nodes.append(labelled(name, card, CARDS[card], count=count, replicas=replicas))
        else:
            found.nodes.append(node(name, {GPU: str(count)}))
            found.slices += [device_slice(name, *[CARDS[card]] * count)] if how == "slices" else []
    for number in range(draw(st.integers(0, 8))):
        found.pods += draw(workload(number, free))
    return found


@st.composite
def workload(draw: st.DrawFn, number: int, free: dict[str, int]) -> list[Object]:
    gpus, replicas = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    fitting = [name for name, left in free.items() if left >= gpus * replicas]
    on = draw(st.none() | st.sampled_from(fitting)) if fitting else None
    if on:
        free[on] -= gpus * replicas
    spec: dict[str, Any] = {"hostNetwork": True} if draw(st.booleans()) else {}
    namespace, limits = draw(st.sampled_from(NAMESPACES)), {GPU: str(gpus)}
    return of_deployment(f"w{number}", namespace, replicas=replicas, on=on, limits=limits, **spec)


@given(clusters())
def test_the_proposal_for_any_cluster_is_accepted_or_names_what_it_lacks(cluster: Cluster) -> None:
    found = survey.read(cluster.api())
    proposal = propose(found, find_gpus(found), {})
    config = plain(document(proposal))["config"]
    refusals = checkout.refusals_of({key.removeprefix(f"{PROJECT}:"): value for key, value in config.items()})
    told = any(line.startswith("scheduler is left out") for line in proposal.misfits)
    assert refusals == () or told


@pytest.mark.parametrize("start", range(0, 300, 50))
def test_the_top_of_the_file_names_what_the_preview_would_refuse(start: int) -> None:
    refused = 0
    for seed in range(start, start + 50):
        cluster, peaks = random_cluster(seed)
        found = survey.read(cluster.api())
        try:
            gpus = find_gpus(found)
        except SurveyError:
            continue
        proposal = propose(found, gpus, peaks)
        config = plain(document(proposal))["config"]
        refusals = checkout.refusals_of({key.removeprefix(f"{PROJECT}:"): value for key, value in config.items()})
        refused += bool(refusals)
        head = stack_text(proposal).partition("config:")[0]
        assert ("Decide first" in head) == bool(refusals), seed
        assert not any("reservation" in seat.workload.namespace for seat in proposal.seats), seed
    assert refused < 20  # drawn peaks and requests that no card holds, and versions without our scheduler
