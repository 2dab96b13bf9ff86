import pulumi
import pytest

from components.priorities import PreemptionPolicy, Priorities, PrioritiesArgs, PrioritySpec
from tests.support.engine import PATCHED, Graph, build
from tests.support.given import declared

ARGS = PrioritiesArgs(
    classes={
        "gpu": PrioritySpec(value=1_200_000, description="GPU pods"),
        "victim": PrioritySpec(value=-1000, preemption_policy=PreemptionPolicy.NEVER),
    }
)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return declared(Priorities, "priorities", ARGS)


def test_a_class_that_is_there_already_is_asked_for_its_values_and_no_more() -> None:
    classes = {"gpu": PrioritySpec(value=1_200_000, create=False, description="GPU pods")}
    graph = declared(Priorities, "priorities", PrioritiesArgs(classes=classes))
    patch = graph.one("PriorityClassPatch")
    assert patch.inputs == {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "gpu", "annotations": PATCHED},
        "value": 1_200_000,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert not graph.all("PriorityClass")
    assert not patch.request.replaceOnChanges


def test_a_change_of_what_is_immutable_plans_a_replacement(graph: Graph) -> None:
    for declared_class in graph.all("PriorityClass"):
        assert list(declared_class.request.replaceOnChanges) == ["value", "preemptionPolicy"]
        assert declared_class.request.deleteBeforeReplace


def test_a_class_is_previewed_as_declared_and_not_by_a_dry_run_which_a_replacement_never_passes(graph: Graph) -> None:
    provider = graph.one("kubernetes")
    assert provider.inputs["enableServerSideApply"] == "false"
    for declared_class in graph.all("PriorityClass"):
        assert declared_class.request.provider.startswith(f"{provider.urn}::")


def test_a_provider_that_was_handed_down_is_the_classes_own() -> None:
    def program() -> None:
        provider = pulumi.ProviderResource("kubernetes", "elsewhere", {"context": "elsewhere"})
        Priorities("priorities", ARGS, pulumi.ResourceOptions(providers=[provider]))

    graph = build(program)
    assert graph.one("kubernetes").name == "elsewhere"
    urn = graph.one("kubernetes").urn
    assert all(each.request.provider.startswith(f"{urn}::") for each in graph.all("PriorityClass"))
