"""Tests the rules about ResourceClaims. Each program breaks only one rule."""

from dataclasses import replace

import pytest

from policy.rule import an_object
from tenancy.ledger import Seat
from tests.support import graphs
from tests.support.graphs import CLAIMED, judge, platform


def claiming(template: object, **spec: object) -> graphs.Manifest:
    pod = {
        "nodeSelector": dict(CLAIMED.pools[0].node_selector),
        "containers": [{"name": "main", "image": "ghcr.io/a/b:1.2.3"}],
        "resourceClaims": [{"name": "x", "resourceClaimTemplateName": template}],
    }
    return an_object("apps/v1", "Deployment", "claiming", "frigate", spec={**spec, "template": {"spec": pod}})


def test_a_template_of_ones_own_counts_as_the_seat_that_it_claims() -> None:
    template = graphs.claim_template("frigate", "frigate", "1Mi")
    own = {**template, "metadata": {"name": "own", "namespace": "frigate"}}
    reported = judge(platform(CLAIMED) | {"own": own, "more": claiming("own", strategy={"type": "Recreate"})})
    assert any("with it 2 pods sit on a seat of 1 x 2000 MiB" in line for line in reported)


# Each case has an object, the rule that refuses it, and a part of the message.
MORE: dict[str, tuple[graphs.Manifest, str, str]] = {
    "a claim beyond its seat": (
        graphs.claim_template("frigate", "frigate", "2196Mi"),
        "claims",
        "claims 2196 MiB, the seat has 2000 and 2195 with its part of the reserve; lower it or raise "
        "residents.frigate.gpumem_mib",
    ),
    "a claim that does not say how much": (
        graphs.claim_template("frigate", "frigate", None),
        "claims",
        "and not how much of it; say memory",
    ),
    "a claim on another tenant's seat": (
        graphs.claim_template("immich", "frigate", "1Mi"),
        "claims",
        "claims frigate.gpumem.viktorbarzin.me, which is no seat of immich; add it to residents",
    ),
    "a rollout that claims a seat twice": (
        claiming("frigate-gpumem", strategy={"rollingUpdate": {"maxSurge": 1}}, replicas=0),
        "rollout",
        "a rollout runs 1 more pod of 2000 MiB, which has no budget; set strategy.type: Recreate",
    ),
    "more claims than a seat has replicas": (
        claiming("frigate-gpumem", strategy={"type": "Recreate"}),
        "seats",
        "with it 2 pods sit on a seat of 1 x 2000 MiB",
    ),
    "a claim of which the template is unknown": (
        claiming(graphs.UNKNOWN, strategy={"type": "Recreate"}),
        "counted",
        "cannot be proven",
    ),
    "a claim on several devices": (
        graphs.claim_template("frigate", "frigate", "2000Mi", count=2),
        "claims",
        "claims more of frigate.gpumem.viktorbarzin.me than the one device that a seat is on",
    ),
    "a claim on all devices": (
        graphs.claim_template("frigate", "frigate", "2000Mi", allocationMode="All"),
        "claims",
        "claims more of frigate.gpumem.viktorbarzin.me than the one device that a seat is on",
    ),
    "a claim that is not counted": (
        graphs.claim_template("frigate", "frigate", "2000Mi", adminAccess=True),
        "claims",
        "claims frigate.gpumem.viktorbarzin.me without counting; remove adminAccess",
    ),
    "a claim that takes what is there": (
        graphs.claim_template("frigate", "frigate", "2000Mi", first_available=True),
        "claims",
        "claims a seat among others under firstAvailable; use exactly",
    ),
}


@pytest.mark.parametrize("case", MORE)
def test_a_claim_too_many_breaks_only_its_rule(case: str) -> None:
    manifest, rule, message = MORE[case]
    reported = judge(platform(CLAIMED) | {"more": manifest})
    assert graphs.rules_of(reported) == {rule}
    assert any(message in line for line in reported), reported


SHARE = "2195Mi"  # 2000 x 15360 / 14000, rounded up to whole MiB


def claims_of(**manifests: graphs.Manifest) -> list[str]:
    return [line for line in judge(platform(CLAIMED) | manifests) if line.startswith("claims: ")]


def test_a_claim_may_have_the_seats_part_of_the_reserve() -> None:
    assert claims_of(own=graphs.claim_template("frigate", "frigate", SHARE)) == []


def test_where_seats_are_no_claims_nobody_claims_one() -> None:
    (reported,) = judge(platform() | {"own": graphs.claim_template("frigate", "frigate", SHARE)})
    assert "claims frigate.gpumem.viktorbarzin.me, which is no seat of frigate" in reported


def test_a_seat_is_claimed_by_its_own_template_alone() -> None:
    template = graphs.claim_template("frigate", "frigate", SHARE)
    other = {**template, "metadata": {"name": "own", "namespace": "frigate"}}
    bare = {**template, "kind": "ResourceClaim", "spec": template["spec"]["spec"]}
    for manifest in (other, bare):
        (reported,) = claims_of(own=manifest)
        assert "beside the template frigate-gpumem, by which pods are held to the nodes of pools.t4" in reported


def test_a_pod_that_claims_a_seat_is_held_to_its_pools_nodes() -> None:
    pod = claiming("frigate-gpumem", strategy={"type": "Recreate"})
    assert claims_of(pod=pod) == []
    pod["spec"]["template"]["spec"]["nodeSelector"] = {}
    (reported,) = claims_of(pod=pod)
    (label, value) = next(iter(CLAIMED.pools[0].node_selector.items()))
    assert (
        f"claims a seat of t4 and may run where that pool is not; give it the nodeSelector {label}: {value}" in reported
    )


def test_claims_that_fit_only_without_their_part_of_the_reserve_are_refused() -> None:
    """NVIDIA's driver allocates whole MiB, so each claim is rounded up."""
    seats = tuple(Seat(name=f"s{n}", tenant="immich", pool="t4", gpumem_mib=2000) for n in range(7))
    full = replace(CLAIMED, seats=seats)
    told = [line for line in judge(platform(full)) if line.startswith("placement: ")]
    assert len(told) == 1
    assert "do not fit on 1 devices of 15360 MiB" in told[0]
    assert "each with its part of the reserve, as it is claimed" in told[0]
    assert [line for line in judge(platform(replace(full, claimed=None))) if line.startswith("placement: ")] == []
