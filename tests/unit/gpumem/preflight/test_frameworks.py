"""Tests preflight's report on frameworks that the cluster does not have."""

from dataclasses import replace

import pytest

from gpumem import survey
from gpumem.preflight.frameworks import framework_parts
from gpumem.preflight.part import Part
from tenancy.frameworks import FRAMEWORKS, FrameworkName
from tests.support.before_rollout import DECLARED, budgeted
from tests.support.given_clusters import Cluster, of_deployment
from tests.support.queued_work import VERSIONS

INSTALLED = sorted(name for name in FrameworkName if "." in FRAMEWORKS[name].group)
EVERY = replace(DECLARED, frameworks=tuple(FRAMEWORKS.values()))


def with_kinds(*names: FrameworkName) -> Cluster:
    cluster = budgeted()
    for name in names:
        group, _, version = VERSIONS[name].partition("/")
        cluster.groups[group] = (version,)
        cluster.kinds.setdefault(VERSIONS[name], []).append(FRAMEWORKS[name].resource)
    return cluster


def found(cluster: Cluster) -> list[Part]:
    return [*framework_parts(survey.read(cluster.api()), EVERY)]


def with_controllers(cluster: Cluster, *names: FrameworkName) -> Cluster:
    for name in names:
        *_, namespace, account = FRAMEWORKS[name].accounts[0].split(":")
        cluster.pods += of_deployment(account, namespace, serviceAccountName=account)
    return cluster


def test_a_group_of_another_program_is_not_the_framework() -> None:
    cluster = with_kinds(*INSTALLED)
    cluster.kinds[VERSIONS[FrameworkName.MPI_JOB]] = ["pytorchjobs"]
    assert [part.name for part in found(with_controllers(cluster, *INSTALLED))] == ["MPIJob"]


@pytest.mark.parametrize("name", INSTALLED)
def test_a_kind_without_its_controller_is_named(name: FrameworkName) -> None:
    framework = FRAMEWORKS[name]
    others = [each for each in INSTALLED if FRAMEWORKS[each].accounts != framework.accounts]
    lines = {part.name: part.text for part in found(with_controllers(with_kinds(*INSTALLED), *others))}
    assert lines[framework.kind].endswith(f"name its account in queues.framework_accounts.{name}")


def test_installed_frameworks_are_no_line() -> None:
    assert found(with_controllers(with_kinds(*INSTALLED), *INSTALLED)) == []


def test_checks_need_the_kind_of_the_cluster_autoscaler() -> None:
    checks = replace(DECLARED, has_checks=True)
    (part,) = framework_parts(survey.read(budgeted().api()), checks)
    assert (part.name, part.blocks) == ("Cluster autoscaler", True)
    cluster = budgeted()
    cluster.groups["autoscaling.x-k8s.io"] = ("v1",)
    cluster.kinds["autoscaling.x-k8s.io/v1"] = ["provisioningrequests"]
    assert [*framework_parts(survey.read(cluster.api()), checks)] == []


def test_kinds_that_may_not_be_read_are_a_gap() -> None:
    cluster = with_controllers(with_kinds(*INSTALLED), *INSTALLED)
    api = cluster.api()
    api.refused.add(f"{survey.GROUPS}/{VERSIONS[FrameworkName.JOBSET]}")
    read = survey.read(api)
    assert [gap.partition(":")[0] for gap in read.gaps] == ["kinds are not known"]
