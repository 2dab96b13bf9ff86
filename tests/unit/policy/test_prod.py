"""Tests that the stack prod breaks no rule."""

import pytest

from stacks import platform, settings
from tests.support import graphs
from tests.support.graphs import judge, put
from tests.support.prod import declared, raw


def test_prod_breaks_no_rule() -> None:
    program = declared(raw())
    assert len(program) > 80
    assert judge(program) == []


def test_a_stack_without_the_optional_parts_breaks_no_rule() -> None:
    assert judge(declared({part: raw()[part] for part in ("cluster", "pools")})) == []


def test_prod_on_a_cluster_with_its_classes_breaks_no_rule() -> None:
    config = raw()
    for priority in config["priorities"].values():
        priority["create"] = False
    assert judge(declared(config)) == []


def test_the_values_of_classes_that_were_there_before_are_judged_too() -> None:
    config = raw()
    for priority in config["priorities"].values():
        priority["create"] = False
    config["priorities"]["tier-2-gpu"]["value"] = 1_200_000
    assert any("tier-2-gpu (1200000) is not below gpu-workload" in line for line in judge(declared(config)))


@pytest.mark.parametrize("by_device", [True, False])
def test_every_resident_that_takes_its_stanza_fits_its_seat(by_device: bool) -> None:
    given = raw()
    if not by_device:
        del given["scheduler"]
    parsed = settings.parse(given)
    ledger = parsed.ledger()
    stanzas = platform.pod_stanzas(parsed, ledger)
    config = {"ledger": ledger.to_data()}
    for name, stanza in stanzas.items():
        workload = graphs.deployment(name, stanza["namespace"], 0)
        put(workload, "spec.template.spec.containers.0.resources", stanza["resources"])
        for field in ("nodeSelector", "tolerations", "priorityClassName"):
            put(workload, f"spec.template.spec.{field}", stanza[field])
        assert judge({name: workload}, config) == []


@pytest.mark.no_cover
@pytest.mark.parametrize("show_pods", [False, True])
def test_the_board_of_prod_passes(show_pods: bool) -> None:
    ingress = {"namespace": "ingress-nginx", "pod_labels": {"app.kubernetes.io/name": "ingress-nginx"}}
    assert judge(declared(raw() | {"board": {"ingress": ingress, "show_pods": show_pods}})) == []


def test_two_keys_of_one_local_queue_are_one_object() -> None:
    config = raw()
    config["queues"]["local_queues"]["other"] = {"tenant": "team-a", "cluster_queue": "gpu-cq", "name": "team-a-gpu"}
    (line,) = judge(declared(config))
    assert line.startswith("identity: LocalQueue team-a/team-a-gpu: is declared by local-queues-team-a-gpu and by ")
