"""Finds the objects of a cluster that a rollout would take over, create or label. Pure."""

from collections.abc import Iterator, Mapping

from agents.kube.errors import Object
from gpumem.preflight.declared import Declared, Named
from gpumem.survey import Survey
from tenancy.workload import map_at, value_or


def taken_over(survey: Survey, declared: Declared) -> tuple[str, ...]:
    """Returns the findings on existing objects of other owners. The texts of the findings are those that `make up`
    prints."""
    return tuple(declared.taken_over(_there(survey, declared)))


def creations(survey: Survey, declared: Declared) -> tuple[str, ...]:
    """Returns the names of the objects that the rollout would create."""
    there = _there(survey, declared)
    return tuple(str(each) for each in sorted(declared.created) if each not in there)


def added_labels(survey: Survey, declared: Declared) -> tuple[str, ...]:
    """Returns the labels that the rollout adds to namespaces that are there."""
    return tuple(_labels(survey, declared))


def _labels(survey: Survey, declared: Declared) -> Iterator[str]:
    for name, wanted in sorted(declared.namespace_labels.items()):
        if name in survey.namespaces:
            have = map_at(survey.namespaces[name], "labels")
            yield from (f"Namespace {name}: {key}={value}" for key, value in wanted.items() if key not in have)


def _there(survey: Survey, declared: Declared) -> Mapping[Named, Object]:
    lists = {
        "ResourceQuota": survey.quotas,
        "ClusterQueue": survey.cluster_queues,
        "LocalQueue": survey.local_queues,
        "PriorityClass": survey.priorities.values(),
    }
    namespaces = {Named("Namespace", "", name): {"metadata": each} for name, each in survey.namespaces.items()}
    return namespaces | {
        Named(kind, str(value_or(each["metadata"], "namespace", "")), str(each["metadata"]["name"])): each
        for kind, items in lists.items()
        for each in items
    }
