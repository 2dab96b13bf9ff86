"""Finds the objects that a rollout would take over, create or label. Pure."""

from collections.abc import Iterator, Mapping

from agents.kube.errors import Object
from gpumem.preflight.declared import Declared, Named
from gpumem.survey import Survey
from tenancy.workload import at, given


def taken_over(survey: Survey, declared: Declared) -> tuple[str, ...]:
    """The findings on objects of others, in the words of `make up`."""
    return tuple(declared.taken_over(_there(survey)))


def creations(survey: Survey, declared: Declared) -> tuple[str, ...]:
    """The objects that the rollout makes, and that are not there."""
    there = _there(survey)
    return tuple(str(each) for each in sorted(declared.created) if each not in there)


def labels(survey: Survey, declared: Declared) -> tuple[str, ...]:
    """The labels that the rollout adds to namespaces of others."""
    return tuple(_labels(survey, declared))


def _labels(survey: Survey, declared: Declared) -> Iterator[str]:
    for name, wanted in sorted(declared.labels.items()):
        if name in survey.namespaces:
            have = at(survey.namespaces[name], "labels")
            yield from (f"Namespace {name}: {key}={value}" for key, value in wanted.items() if key not in have)


def _there(survey: Survey) -> Mapping[Named, Object]:
    """The objects of the survey that a stack may name."""
    lists = {
        "ResourceQuota": survey.quotas,
        "ClusterQueue": survey.cluster_queues,
        "LocalQueue": survey.local_queues,
        "PriorityClass": survey.priorities.values(),
    }
    found = {Named("Namespace", "", name): {"metadata": metadata} for name, metadata in survey.namespaces.items()}
    return found | {
        Named(kind, str(given(each["metadata"], "namespace", "")), str(each["metadata"]["name"])): each
        for kind, items in lists.items()
        for each in items
    }
