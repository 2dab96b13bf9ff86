"""Seats as claims on devices: each program breaks only its rule."""

import pytest

from tests.support import graphs
from tests.support.graphs import an_object, judge, platform


def claiming(template: object, **spec: object) -> graphs.Manifest:
    """A Deployment whose pods claim a seat by the template."""
    pod = {
        "containers": [{"name": "main", "image": "ghcr.io/a/b:1.2.3"}],
        "resourceClaims": [{"name": "x", "resourceClaimTemplateName": template}],
    }
    return an_object("apps/v1", "Deployment", "claiming", "frigate", spec={**spec, "template": {"spec": pod}})


def test_a_template_of_ones_own_counts_as_the_seat_that_it_claims() -> None:
    program = platform() | {
        "own": {
            **graphs.claim_template("frigate", "frigate", "1Mi"),
            "metadata": {"name": "own", "namespace": "frigate"},
        },
        "more": claiming("own", strategy={"type": "Recreate"}),
    }
    (reported,) = judge(program)
    assert "with it 2 pods sit on a seat of 1 x 2000 MiB" in reported


# An object more: the object, the rule, a part of the message.
MORE: dict[str, tuple[graphs.Manifest, str, str]] = {
    "a claim beyond its seat": (
        graphs.claim_template("frigate", "frigate", "2001Mi"),
        "claims",
        "claims 2001 MiB, the seat has 2000; lower it or raise residents.frigate.gpumem_mib",
    ),
    "a claim that does not say how much": (
        graphs.claim_template("frigate", "frigate", None),
        "claims",
        "and not how much of it; say gpumem",
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
    "a seat to claim without a quota": (
        an_object("resource.k8s.io/v1", "DeviceClass", "frigate.gpumem.viktorbarzin.me", spec={}),
        "claims",
        "no ResourceQuota holds frigate to 1 of it; set "
        "frigate.gpumem.viktorbarzin.me.deviceclass.resource.k8s.io/devices",
    ),
}


@pytest.mark.parametrize("case", MORE)
def test_a_claim_too_many_breaks_only_its_rule(case: str) -> None:
    manifest, rule, message = MORE[case]
    reported = judge(platform() | {"more": manifest})
    assert graphs.rules_of(reported) == {rule}
    assert any(message in line for line in reported), reported
