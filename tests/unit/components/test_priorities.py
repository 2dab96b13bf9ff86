import pulumi
import pytest

from components.priorities import PreemptionPolicy, Priorities, PrioritiesArgs, PrioritySpec
from tests.support.engine import Graph, build, names
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


def test_each_class_is_declared_under_its_own_name(graph: Graph) -> None:
    assert names(graph.all("PriorityClass")) == {"priorities-gpu", "priorities-victim"}
    assert {c.inputs["metadata"]["name"] for c in graph.all("PriorityClass")} == {"gpu", "victim"}
    assert graph.outputs_of(graph.one("Priorities")) == {"values": {"gpu": 1_200_000, "victim": -1000}}


def test_value_and_preemption_policy_are_as_given(graph: Graph) -> None:
    gpu, victim = (graph.one("PriorityClass", f"priorities-{name}").inputs for name in ("gpu", "victim"))
    assert (gpu["value"], gpu["preemptionPolicy"], gpu["description"]) == (
        1_200_000,
        "PreemptLowerPriority",
        "GPU pods",
    )
    assert (victim["value"], victim["preemptionPolicy"]) == (-1000, "Never")
    assert "description" not in victim


def test_no_class_is_the_clusters_default(graph: Graph) -> None:
    assert [c.inputs["globalDefault"] for c in graph.all("PriorityClass")] == [False, False]


def test_a_change_of_what_is_immutable_plans_a_replacement(graph: Graph) -> None:
    for declared_class in graph.all("PriorityClass"):
        assert list(declared_class.request.replaceOnChanges) == ["value", "preemptionPolicy"]
        assert declared_class.request.deleteBeforeReplace


def test_a_class_is_previewed_as_declared_and_not_by_a_dry_run_which_a_replacement_never_passes(graph: Graph) -> None:
    provider = graph.one("kubernetes")
    assert provider.inputs["enableServerSideApply"] == "false"
    for declared_class in graph.all("PriorityClass"):
        assert declared_class.request.provider.startswith(f"{provider.urn}::")


def test_the_classes_go_where_the_stacks_own_provider_goes() -> None:
    args = PrioritiesArgs(classes=ARGS.classes, provider={"context": "lab"})
    given = declared(Priorities, "priorities", args).one("kubernetes").inputs
    assert given == {"context": "lab", "enableServerSideApply": "false"}


def test_a_provider_that_was_handed_down_is_the_classes_own() -> None:
    def program() -> None:
        provider = pulumi.ProviderResource("kubernetes", "elsewhere", {"context": "elsewhere"})
        Priorities("priorities", ARGS, pulumi.ResourceOptions(providers=[provider]))

    graph = build(program)
    assert graph.one("kubernetes").name == "elsewhere"
    urn = graph.one("kubernetes").urn
    assert all(each.request.provider.startswith(f"{urn}::") for each in graph.all("PriorityClass"))
