"""The recorded-graph harness itself: it must be able to fail."""

from typing import Any

import pulumi
import pytest
from pulumi_kubernetes.core.v1 import ConfigMap

from components.base.manifest import component_type, register
from tests.support.engine import Graph, build, names


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a_key": "1"}}


class Shelf(pulumi.ComponentResource):
    """A component with two children, one after the other."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Shelf"), name, {}, opts)
        first = register(config_map("first"), f"{name}-first", parent=self)
        register(config_map("second"), f"{name}-second", parent=self, depends_on=[first])
        self.register_outputs({"label": first.metadata["name"]})


@pytest.fixture(scope="module")
def graph() -> Graph:
    def program() -> None:
        shelf = Shelf("shelf")
        book = ConfigMap("book", metadata={"name": "book"}, opts=pulumi.ResourceOptions(depends_on=[shelf]))
        pulumi.export("title", book.metadata["name"])

    return build(program)


def test_it_records_components_and_objects(graph: Graph) -> None:
    assert names(graph.resources) == {"shelf", "shelf-first", "shelf-second", "book"}
    assert graph.one("Shelf").custom is False
    assert {o["metadata"]["name"] for o in graph.objects()} == {"first", "second", "book"}


def test_inputs_arrive_as_the_engine_gets_them(graph: Graph) -> None:
    assert graph.one("ConfigMap", "shelf-first").inputs == config_map("first")


def test_a_manifest_has_whole_numbers_where_the_wire_has_doubles() -> None:
    def program() -> None:
        manifest = {"apiVersion": "example.com/v1", "kind": "Shelf", "spec": {"books": [3], "weight": 0.5}}
        register(manifest, "shelf", parent=pulumi.ComponentResource(component_type("Room"), "room"))

    graph = build(program)
    assert isinstance(graph.one("Shelf").inputs["spec"]["books"][0], float)
    (manifest,) = graph.objects()
    assert isinstance(manifest["spec"]["books"][0], int)
    assert manifest["spec"] == {"books": [3], "weight": 0.5}


def test_it_records_parents(graph: Graph) -> None:
    shelf = graph.one("Shelf")
    assert graph.parent(graph.one("ConfigMap", "shelf-first")) == shelf
    assert graph.parent(graph.one("ConfigMap", "book")) is None
    assert names(graph.children(shelf)) == {"shelf-first", "shelf-second"}


def test_it_records_the_order_through_components_and_steps_and_not_its_reverse(graph: Graph) -> None:
    first, second, book = (graph.one("ConfigMap", name) for name in ("shelf-first", "shelf-second", "book"))
    assert graph.depends_on(second, first)
    assert graph.depends_on(book, first)
    assert not graph.depends_on(first, second)
    assert not graph.depends_on(first, book)


def test_what_a_component_depends_on_comes_before_its_children() -> None:
    def program() -> None:
        book = ConfigMap("book", metadata={"name": "book"})
        Shelf("shelf", pulumi.ResourceOptions(depends_on=[book]))

    graph = build(program)
    first, book = graph.one("ConfigMap", "shelf-first"), graph.one("ConfigMap", "book")
    assert graph.depends_on(first, book)
    assert not graph.depends_on(book, first)


def test_it_records_outputs_and_exports_as_plain_data(graph: Graph) -> None:
    assert graph.outputs_of(graph.one("Shelf")) == {"label": "first"}
    assert graph.exports == {"title": "book"}


def test_a_component_that_registers_no_outputs_is_seen() -> None:
    graph = build(lambda: pulumi.ComponentResource(component_type("Bare"), "bare"))
    with pytest.raises(KeyError):
        graph.outputs_of(graph.one("Bare"))


def test_one_refuses_none_and_several(graph: Graph) -> None:
    with pytest.raises(LookupError, match="0 of Secret"):
        graph.one("Secret")
    with pytest.raises(LookupError, match="3 of ConfigMap"):
        graph.one("ConfigMap")


def test_what_the_program_raises_is_raised() -> None:
    def program() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        build(program)


def test_what_a_bare_apply_raises_is_raised() -> None:
    def program() -> None:
        Shelf("shelf")
        ConfigMap("book", metadata={"name": "book"}).metadata.apply(lambda _: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        build(program)


def test_the_same_resource_twice_is_refused() -> None:
    def program() -> None:
        for _ in range(2):
            ConfigMap("book", metadata={"name": "book"})

    with pytest.raises(Exception, match="duplicate resource"):
        build(program)


def test_graphs_do_not_leak_into_each_other(graph: Graph) -> None:
    again = build(lambda: Shelf("other"))
    assert names(again.resources) == {"other", "other-first", "other-second"}
    assert again.exports == {}
    assert "other" not in names(graph.resources)
